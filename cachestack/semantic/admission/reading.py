"""An answer cut into clauses, each in one form, for what looks at wording. Takes a bounded number of steps: of a long
answer the beginning is read, which says what it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_READ = 3_000
"""Characters of an answer that are cut into clauses."""
MAX_CLAUSES = 48

_QUOTES = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\u00b4": "'", "`": "'", "\u00a0": " "})
_MARKS = str.maketrans("", "", "*_#>")
_SPLIT = re.compile(
    r"(?<=[.!?\u2026])[\"')\u00bb]? | ?; |, (?=but |however|though |so |and i |mais |cependant|toutefois|donc )"
    r"| (?=but |mais |however,)|: (?=here|voici|you|vous)| [\u2013\u2014-] "
)
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*'?")


@dataclass(frozen=True, slots=True)
class Clause:
    """`text` is lower case, with straight quotes and single spaces. `words`: its words; what is elided in French, and
    shortened in English, is cut off at the apostrophe, which stays with the first part."""

    text: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """`is_long`: more was there than has been read."""

    clauses: tuple[Clause, ...]
    is_long: bool


def read(answer: str) -> Reading:
    head = answer[:MAX_READ]
    clauses: list[Clause] = []
    for line in head.splitlines():
        folded = " ".join(line.lower().translate(_QUOTES).translate(_MARKS).split())
        for piece in _SPLIT.split(folded):
            if piece and len(clauses) < MAX_CLAUSES:
                clauses.append(clause_of(piece))
    kept = tuple(clause for clause in clauses if clause.words)
    return Reading(kept, len(answer) > MAX_READ or len(clauses) >= MAX_CLAUSES)


def clause_of(text: str) -> Clause:
    return Clause(text, tuple(_WORD.findall(text)))


def fold(text: str) -> str:
    """Lower case, straight quotes, single spaces."""
    return " ".join(text[:MAX_READ].lower().translate(_QUOTES).split())


def words_of(text: str) -> frozenset[str]:
    """For lists of words in the code."""
    return frozenset(text.split())
