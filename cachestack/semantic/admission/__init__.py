"""What may be kept: whether an answer is one, and what in it or its question belongs to somebody.

Pure functions over texts, each with the evidence for what it found; English and French.
"""

from __future__ import annotations

from collections.abc import Collection

from cachestack.semantic.admission.base import REASON_OF, Finding
from cachestack.semantic.admission.cut import find_cut
from cachestack.semantic.admission.errors import find_error
from cachestack.semantic.admission.hollow import find_hollow
from cachestack.semantic.admission.placeholders import find_placeholder
from cachestack.semantic.admission.reading import read
from cachestack.semantic.admission.refusals import find_refusal

KINDS = frozenset(REASON_OF)


def examine(
    question: str,
    system: tuple[str, ...],
    answer: str,
    kinds: Collection[str] = KINDS,
    *,
    may_end_anywhere: bool = False,
) -> Finding | None:
    """What keeps an answer out, of the `kinds` that are looked for; None for one that is finished and says something.

    `may_end_anywhere`: the request itself makes answers end early (a stop text, a beginning to be gone on with).
    """
    reading = read(answer)
    found = find_placeholder(question, answer) if "placeholder" in kinds else None
    if found is None and "error" in kinds:
        found = find_error(question, answer, reading)
    if found is None:
        found = find_refusal(question, system, reading)
        found = found or find_hollow(question, system, reading)
        found = found if found is not None and found.kind in kinds else None
    if found is None and "cut_off" in kinds and not may_end_anywhere:
        found = find_cut(answer)
    return found


__all__ = ["KINDS", "Finding", "examine"]
