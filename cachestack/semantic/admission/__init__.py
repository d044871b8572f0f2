"""What may be kept: whether an answer is one, and what in it or its question belongs to somebody.

Pure functions over texts, each with the evidence for what it found; English and French. Rules say what is certain, by
shape; a small linear model, to which the rules are evidence too, says the rest.
"""

from __future__ import annotations

from collections.abc import Collection

from cachestack.semantic.admission.base import REASON_OF, Finding
from cachestack.semantic.admission.cut import UNSURE, find_cut
from cachestack.semantic.admission.errors import find_error
from cachestack.semantic.admission.features import asks_for
from cachestack.semantic.admission.model import AdmissionModel, shipped
from cachestack.semantic.admission.placeholders import find_placeholder
from cachestack.semantic.admission.plain import is_plain

KINDS = frozenset(REASON_OF)
MAX_QUESTION_CHARS = 4_000


def examine(
    question: str,
    system: tuple[str, ...],
    answer: str,
    kinds: Collection[str] = KINDS,
    *,
    may_end_anywhere: bool = False,
    model: AdmissionModel | None = None,
) -> Finding | None:
    """What keeps an answer out, of the `kinds` that are looked for; None for one that is finished and says something.

    `may_end_anywhere`: the request itself makes answers end early (a stop text, a beginning to be gone on with).
    `model`: another than the one that ships.
    """
    if not kinds:
        return None
    question = as_asked(question, system)
    found, is_sure = find_by_rules(question, answer)
    if found is None and is_plain(question, answer):
        return None
    if found is None or not is_sure:
        judged = (model or shipped()).judge(question, answer, names_of(found))
        if judged.probability < (model or shipped()).refuse_from:
            return None
        found = Finding(judged.kind, {"shape": "wording", "probability": round(judged.probability, 3)})
    if found.kind not in kinds or (found.kind == "cut_off" and may_end_anywhere):
        return None
    return found


def as_asked(question: str, system: tuple[str, ...]) -> str:
    """The question, with the task of a system prompt that translates."""
    translates = any("translat" in text or "tradui" in text for text in (one[:2_000].lower() for one in system))
    return f"translate: {question[:MAX_QUESTION_CHARS]}" if translates else question[:MAX_QUESTION_CHARS]


def find_by_rules(question: str, answer: str) -> tuple[Finding | None, bool]:
    """What the rules found, and whether that is certain."""
    wanted = asks_for(question)
    for found, is_sure in (find_placeholder(question, wanted, answer), find_error(wanted, answer)):
        if found is not None:
            return found, is_sure
    found = find_cut(answer)
    return found, found is not None and found.evidence["end"] not in UNSURE


def names_of(found: Finding | None) -> tuple[str, ...]:
    """For the model."""
    return () if found is None else (f"{found.kind} {' '.join(map(str, found.evidence.values()))}",)


__all__ = ["KINDS", "AdmissionModel", "Finding", "as_asked", "examine", "find_by_rules", "names_of"]
