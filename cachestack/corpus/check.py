"""Whether the corpus is what its datasheet says: sizes, shares, duplicates, splits that do not overlap."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cachestack.corpus.schema import Question

FAR = 0.3
MAX_MASKED_SHARE = 0.02
MIN_FAR_SHARE = 0.3
MIN_FRENCH_SHARE, MAX_FRENCH_SHARE = 0.3, 0.37
MIN_QUESTIONS = 3000
NUMBER = re.compile(r"\d[\d.,:/]*")
NAME = re.compile(r"(?<!^)(?<![.?!] )\b[A-ZÀ-Ý][\w'-]*")
DAY_OR_MONTH = re.compile(
    r"\b(january|february|march|april|may|june|july|august|september|october|november|december"
    r"|monday|tuesday|wednesday|thursday|friday|saturday|sunday"
    r"|janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre"
    r"|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Findings:
    """What the corpus holds, and what is wrong with it. Shares are fractions."""

    num_questions: int
    num_rewordings: int
    num_near_misses: int
    french_share: float
    far_share: float
    masked_share: float
    by_domain: Mapping[str, int]
    by_kind: Mapping[str, int]
    problems: tuple[str, ...]


def check(splits: Mapping[str, Sequence[Question]]) -> Findings:
    """Look at all splits together. `problems` is empty for a sound corpus."""
    questions = [question for split in splits.values() for question in split]
    near = [(question, miss) for question in questions for miss in question.near_misses]
    far = [shared_words(q.text, text) < FAR for q in questions for text in q.rewordings]
    texts = [(q, t) for q in questions for t in (*q.rewordings, *(m.text for m in q.near_misses))]
    masks = Counter((masked(question.text), masked(text)) for question, text in texts)
    num_french = sum(question.language == "fr" for question in questions)
    findings = Findings(
        num_questions=len(questions),
        num_rewordings=len(far),
        num_near_misses=len(near),
        french_share=num_french / max(1, len(questions)),
        far_share=sum(far) / max(1, len(far)),
        masked_share=sum(n for n in masks.values() if n > 1) / max(1, len(texts)),
        by_domain=Counter(question.domain for question in questions),
        by_kind=Counter(miss.kind for _, miss in near),
        problems=(),
    )
    problems = [*_of_size(findings), *_of_questions(questions), *_of_splits(splits)]
    return Findings(**{name: getattr(findings, name) for name in findings.__slots__} | {"problems": tuple(problems)})


def shared_words(one: str, other: str) -> float:
    """Jaccard similarity of the two texts' sets of words, without case."""
    first, second = words(one), words(other)
    return len(first & second) / max(1, len(first | second))


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", unicodedata.normalize("NFC", text).lower()))


def masked(text: str) -> str:
    """The text with numbers, names, days and months taken out: what a template would leave."""
    text = DAY_OR_MONTH.sub("%", NUMBER.sub("#", unicodedata.normalize("NFC", text)))
    return " ".join(NAME.sub("@", text).lower().split())


def _of_size(found: Findings) -> Iterable[str]:
    if found.num_questions < MIN_QUESTIONS:
        yield f"{found.num_questions} questions; at least {MIN_QUESTIONS} were meant"
    if not MIN_FRENCH_SHARE <= found.french_share <= MAX_FRENCH_SHARE:
        yield f"{found.french_share:.0%} of the questions are French; a third was meant"
    if found.far_share < MIN_FAR_SHARE:
        yield f"{found.far_share:.0%} of the rewordings share few words; at least {MIN_FAR_SHARE:.0%} were meant"
    if found.masked_share > MAX_MASKED_SHARE:
        yield f"{found.masked_share:.1%} of the pairs are equal after masking; at most {MAX_MASKED_SHARE:.0%} may be"


def _of_questions(questions: Sequence[Question]) -> Iterable[str]:
    for name, counts in (
        ("id", Counter(question.id for question in questions)),
        ("text", Counter(" ".join(question.text.lower().split()) for question in questions)),
    ):
        yield from (f"{name} {value!r} is there {n} times" for value, n in counts.items() if n > 1)
    for question in questions:
        texts = [question.text, *question.rewordings, *(miss.text for miss in question.near_misses)]
        if len({text.strip().lower() for text in texts}) < len(texts):
            yield f"{question.id}: a text is there twice"
        if len(question.rewordings) < 2 or len(question.near_misses) < 2:
            yield f"{question.id}: needs two rewordings and two near misses"


def _of_splits(splits: Mapping[str, Sequence[Question]]) -> Iterable[str]:
    where: dict[str, str] = {}
    for name, questions in splits.items():
        for question in questions:
            earlier = where.setdefault(masked(question.text), name)
            if earlier != name:
                yield f"{question.id}: the same question is in {earlier} and in {name}"
