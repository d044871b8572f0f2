"""The order of steps: the same steps in another order are other instructions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from cachestack.answers.overlap import likeness
from cachestack.answers.reading import Answer, read
from cachestack.semantic.text import Text
from cachestack.semantic.words import fold

MAX_STEPS = 40
ALIKE = 0.6
_CUE = re.compile(
    r"\b(?:first|firstly|first of all|then|next|after that|afterwards|finally|lastly|second|secondly|third"
    r"|d'abord|tout d'abord|premièrement|puis|ensuite|après cela|enfin|pour finir|deuxièmement)\b,?"
)
_ASKS_ORDER = re.compile(
    r"\b(?:order|sequence|steps?|stages?|rank|ranking|ranked|chronological|podium|standings"
    r"|top \w+|how (?:do|can|should|to)|procedure"
    r"|ordre|étapes?|classement|chronologie|chronologique|déroulement"
    r"|comment (?:faire|puis|dois)|procédure|marche à suivre)\b"
)
_STRICT = re.compile(
    r"\b(?:order|sequence|stages|phases|rank|ranking|ranked|chronological|podium|standings|ordre|classement|chronologi\w+|déroulement|étapes?|steps?)\b"
)
_NO_ORDER = re.compile(
    r"\b(?:no|any|without|aucun|sans|n'importe quel|pas d')[ ']*(?:particular |special )?(?:order|ordre)\b"
)
_COMMAS = re.compile(r", (?:(?:and|et) (?:then |puis )?)?| and | et | > | → | -> ")
_RELATED = re.compile(r"\b(?:before|after|until|once|avant|après|une fois|jusqu)\b")


def steps(answer: Answer, language: str | None, asked: bool = False) -> tuple[list[Text], bool]:
    """The steps in order, and whether they are marked as such: by numbers, by `first`, `then`, or by the question."""
    numbered = any(line.number is not None for line in answer.lines)
    found: list[str] = []
    cued = False
    for unit in answer.units:
        text = fold(unit.raw)
        parts = [part.strip(" ,;.") for part in _CUE.split(text)]
        cued = cued or len(parts) > 1
        if asked:
            parts = [item for part in parts for item in _COMMAS.split(part)]
        found += [part for part in parts if len(part) > 1]
    return [read(text, language) for text in found[: MAX_STEPS + 1]], numbered or cued or asked


def reordered(x: Answer, y: Answer, language: str | None, question: str | None = None) -> bool | None:
    """Whether the same steps come in another order; None where what comes first may be said in words.

    Order counts where the steps are marked, or where the question asks for it; then items of a sentence are steps.
    """
    wish = fold(question or "")
    asked = _STRICT.search(wish) is not None and _NO_ORDER.search(wish) is None
    ours, marked = steps(x, language, asked)
    theirs, also = steps(y, language, asked)
    unsure = None if (marked or also) and not asked and _items_reordered(x, y, language) else False
    if not (marked or also) or not (2 <= len(ours) <= MAX_STEPS and 2 <= len(theirs) <= MAX_STEPS):
        return unsure
    partners = _partners(ours, theirs)
    if all(j < k for j, k in itertools.pairwise(partners)):
        return unsure
    related = any(_RELATED.search(t.folded) for t in (*ours, *theirs))
    if asked:
        return None if related else True
    is_how = question is None or _ASKS_ORDER.search(fold(question)) is not None
    return None if related or not (marked and also) or not is_how else True


def _items_reordered(x: Answer, y: Answer, language: str | None) -> bool:
    """Whether three or more of what is enumerated in sentences comes the other way round."""
    ours, theirs = steps(x, language, True)[0], steps(y, language, True)[0]
    if not (3 <= len(ours) <= MAX_STEPS and 3 <= len(theirs) <= MAX_STEPS):
        return False
    partners = _partners(ours, theirs)
    return len(partners) >= 3 and any(j > k for j, k in itertools.pairwise(partners))


def _partners(ours: Sequence[Text], theirs: Sequence[Text]) -> list[int]:
    """For each step that has one, in order, its partner's place: each the other's best."""
    alike = [[likeness(a, b) for b in theirs] for a in ours]
    found = []
    for row_number, row in enumerate(alike):
        j = max(range(len(row)), key=row.__getitem__)
        column = [other[j] for other in alike]
        best = sum(value == row[j] for value in row) == sum(value == row[j] for value in column) == 1
        if row[j] >= ALIKE and best and max(column) == row[j] == column[row_number]:
            found.append(j)
    return found
