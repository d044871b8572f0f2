"""Whether two answers to one question say the same: `compare`, pure but for the encoder and the judge it is given.

The names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachestack.answers.alignment import Embed
    from cachestack.answers.comparing import Judging, compare
    from cachestack.answers.sameness import By, Sameness

_HOME = {"By": "sameness", "Embed": "alignment", "Judging": "comparing", "Sameness": "sameness", "compare": "comparing"}

__all__ = ["By", "Embed", "Judging", "Sameness", "compare"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
