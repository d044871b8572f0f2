"""The stacks of `tests/core`, with the budget in memory or on disk."""

from __future__ import annotations

from tests.core.conftest import clock, encoder, make_stack

__all__ = ["clock", "encoder", "make_stack"]
