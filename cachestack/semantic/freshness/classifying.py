"""Does the answer to this question move with time? From its words alone: pure, without a clock, well under 1 ms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from cachestack.semantic.freshness.cues import Changes, cues, folded
from cachestack.semantic.freshness.model import probability, shipped
from cachestack.semantic.freshness.relative import Period, relative_period

_FIRST_PERSON = re.compile(
    r"(?<!\w)(?:my|mine|i|me|our|ours|we|us|mon|ma|mes|moi|je|j|notre|nos|nous|m)(?!\w)", re.IGNORECASE
)
END_CHARS = 300
"""Of a longer text only so much of its beginning and end is judged: a question stands there. A relative time ends a
life wherever it stands."""
CERTAIN = 4.6
"""Log-odds of moving at least, where a phrase says so that is certain."""
_ABOUT_WORDS = frozenset({"definition", "translate"})
"""Questions about words: what a word means does not move with what it names."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """`changes`: how soon another answer is right. `score`: the probability that it changes at all, from 0 to 1.

    `is_sure` is False where it may as well be `never`. `cues`: what was seen, each with its words. `relative`: the
    period after which the question's own words mean another time. `own_state`: it asks for what is the asker's alone.
    """

    changes: Changes
    score: float
    is_sure: bool = True
    cues: tuple[tuple[str, str], ...] = ()
    relative: Period | None = None
    own_state: bool = False

    @property
    def evidence(self) -> tuple[str, ...]:
        """The names of what was seen."""
        return tuple(name for name, _ in self.cues)


@lru_cache(maxsize=2048)
def freshness_of(question: str) -> Freshness:
    """Of one question. Other languages than English and French are judged by their digits and names alone."""
    text = folded(question)
    ends = text if len(text) <= 2 * END_CHARS else f"{text[:END_CHARS]} … {text[-END_CHARS:]}"
    found = cues().found(ends)
    moves, fast = shipped().log_odds(ends, found)
    is_about_words = not _ABOUT_WORDS.isdisjoint(found)
    relative = None if is_about_words else relative_period(text)
    near = relative if ends is text or relative is None else relative_period(ends)
    changes, is_sure, said = _class_of(ends, found, near, moves, fast)
    if said is not None:
        moves = max(moves, CERTAIN)
    found |= {"certain": said} if said else {}
    found |= {"relative_time": relative[1]} if relative else {}
    own = changes == "fast" and "own_state" in found and _FIRST_PERSON.search(text) is not None
    return Freshness(
        changes, round(probability(moves), 4), is_sure, tuple(found.items()), relative and relative[0], own
    )


def _class_of(
    text: str, found: Mapping[str, str], relative: tuple[Period, str] | None, moves: float, fast: float
) -> tuple[Changes, bool, str | None]:
    """The class, whether it is sure, and the words that made it certain, if any did."""
    known, model = cues(), shipped()
    may_be_certain = _ABOUT_WORDS.isdisjoint(found) and "past_year" not in found
    if may_be_certain and (said := known.fast.search(text)):
        return "fast", True, said[0]
    if may_be_certain and relative is not None and relative[0] in ("hour", "day"):
        return "fast", True, relative[1]
    if moves >= model.unsure_from:
        return ("fast" if fast >= model.fast_from else "slow"), moves >= model.sure_from, None
    if may_be_certain and (said := known.slow.search(text)):
        return "slow", True, said[0]
    if may_be_certain and relative is not None:
        return "slow", True, relative[1]
    return "never", True, None
