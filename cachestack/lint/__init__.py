"""The prompt linter: what in a log of requests breaks a prefix cache, what it costs, and how to reorder."""

from __future__ import annotations

from cachestack.lint.linting import lint, open_space
from cachestack.lint.report import Divergence, Finding, LintReport, RepeatedPrefix

__all__ = ["Divergence", "Finding", "LintReport", "RepeatedPrefix", "lint", "open_space"]
