"""A step's evidence without a word of what was asked or answered: for logs and spans that leave the process."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from cachestack.decisions import Layer, Step

# Names that the code or the operator gave, never a caller's words.
_NAMES = frozenset(
    {"model", "engine", "entry_id", "guard", "band", "kind", "boundary", "language", "by_meaning", "finish", "dtype",
     "doubts", "name", "state", "changes", "bound", "cues", "relative"}
)  # fmt: skip
_TYPE_OF_ERROR = re.compile(r"([A-Za-z_]\w*): ")


def evidence_of(step: Step) -> dict[str, Any]:
    """What of the step's detail is a number, a truth value, or a name from a list that is known.

    What the guards found in the texts, and the words of errors, are left out; of an engine's error its type stays.
    """
    kept = _plain(step.detail)
    error = step.detail.get("error")
    if step.layer is Layer.DECODE and isinstance(error, str) and (found := _TYPE_OF_ERROR.match(error)):
        kept["error"] = found[1]
    return kept


def _plain(detail: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in detail.items():
        match value:
            case bool() | int() | None:
                kept[key] = value
            case float():
                kept[key] = value if math.isfinite(value) else None
            case str() if key in _NAMES:
                kept[key] = value
            case list() | tuple() if key in _NAMES and all(isinstance(item, str) for item in value):
                kept[key] = list(value)
            case Mapping() if key != "evidence" and (inner := _plain(value)):
                kept[key] = inner
    return kept
