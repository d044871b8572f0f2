"""What comparing two answers finds: the same, different, or not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

By = Literal["exact", "normalised", "numeric", "label", "list", "meaning", "judge"]


@dataclass(frozen=True, slots=True)
class Sameness:
    """`same`: True, False, or None where it can't be told. `by`: what settled it, or was the last to try.

    `score`: how alike they are, 0 to 1: lower where one answer says more, 0.5 where nothing speaks for either. It
    orders pairs and is no probability. `evidence` is JSON-able; what only one answer has is under `x` or `y`.
    """

    same: bool | None
    by: By
    score: float
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> NoReturn:
        """Raises TypeError: there are three outcomes, and "not known" must not pass for "different"."""
        raise TypeError("a Sameness has three outcomes; ask `.same is True`, `.same is False` or `.same is None`")

    def swapped(self) -> Sameness:
        """The same finding with the answers in the other order."""
        return Sameness(self.same, self.by, self.score, _swap(self.evidence))


def _swap(value: Any) -> Any:
    if isinstance(value, Mapping):
        names = {"x": "y", "y": "x"}
        swapped = {names.get(key, key): _swap(part) for key, part in value.items()}
        return dict(sorted(swapped.items())) if swapped.keys() == {"x", "y"} else swapped
    return [_swap(part) for part in value] if isinstance(value, list) else value


def told_apart(by: By, score: float, kind: str, x: Any, y: Any) -> Sameness:
    """Different, with what each side has."""
    return Sameness(False, by, score, {"differs": kind, "x": x, "y": y})
