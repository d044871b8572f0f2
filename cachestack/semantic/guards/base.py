"""What a guard is: a pure function of two analysed texts that says whether one answer can serve both, and on what
evidence.

A guard looks for one kind of difference. It never fires on equal texts, does not depend on which text was first, and
does not change with letter case (but in code), white space or Unicode form. `certain` says that the difference alone
settles the matter (100 against 250 dollars in texts that are otherwise alike): it vetoes. Otherwise it is a doubt (a
word that only one side has), evidence that a trained verifier weighs with the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cachestack.semantic.text import Text


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kind` names the difference; `evidence` is JSON-able: what was found on the cached and on the asked side."""

    passed: bool
    certain: bool
    kind: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


class Guard(Protocol):
    def __call__(self, cached: Text, asked: Text) -> Verdict: ...


def passed(kind: str) -> Verdict:
    return Verdict(True, True, kind)


def rejected(kind: str, cached: Any, asked: Any, certain: bool = True) -> Verdict:
    """A rejection with what each side has."""
    return Verdict(False, certain, kind, {"cached": _plain(cached), "asked": _plain(asked)})


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value
