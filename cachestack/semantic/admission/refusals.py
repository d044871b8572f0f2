"""Answers that refuse, apologise, or only ask back, and say nothing of the matter.

A good answer may begin with an apology or with what it cannot do, and then solve: what is left when the clauses that
refuse, excuse, justify and offer are taken away decides.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import takewhile

from cachestack.semantic.admission import wording as w
from cachestack.semantic.admission.base import Finding
from cachestack.semantic.admission.labels import Label, label
from cachestack.semantic.admission.reading import Clause, Reading, clause_of, fold

NUM_OPENING = 5
"""Clauses in which a refusal is looked for: one that comes later follows an answer."""
MIN_CONTENT = 18
"""Words of the matter that make an answer of one that refuses as well."""
MIN_AFTER_APOLOGY = 4
MIN_COURTESY = 4
MIN_TURN = 6
MAX_PLAIN_REFUSAL = 12
_THIS = frozenset({"that", "this", "those", "such", "ça", "cela", "ceci", "cette"})
MAX_OF_ONESELF = 3
"""Clauses."""
MAX_BESIDE_QUESTION = 14
"""Words of the matter beside a question back that do not make it an answer."""
COURTESY = frozenset({Label.FILLER, Label.OFFER, Label.APOLOGY})
_PLAIN = frozenset({Label.CONTENT, Label.SOLVING, Label.JUSTIFYING, Label.REDIRECT})
_ON_WORDS = re.compile(r"[\"\u00ab\u201c]|\bconjug", re.IGNORECASE)
_COMMA = re.compile(r", |: ")
_BUT = frozenset({"but", "mais", "however", "though", "although", "cependant", "toutefois"})
YES_OR_NO = frozenset({"yes", "no", "oui", "non", "si"})


def find_refusal(question: str, system: tuple[str, ...], reading: Reading) -> Finding | None:
    """A finding of kind `refusal` or `asks_back`."""
    clauses = [piece for clause in reading.clauses for piece in _after_apology(clause)]
    opening = [label(clause) for clause in clauses[:NUM_OPENING]]
    if not opening or (_PLAIN.issuperset(opening) and not any(map(_speaks_of_oneself, clauses[:NUM_OPENING]))):
        return None
    if _says_what_it_means(question, clauses) and Label.STRONG not in opening[1:]:
        return None
    if _says_yes_or_no(clauses[0]):
        opening[0] = Label.CONTENT
    labels = opening + [label(clause) for clause in clauses[NUM_OPENING:]]
    solving = Label.SOLVING in labels or reading.is_long
    content = sum(len(c.words) for c, one in zip(clauses, labels, strict=True) if one is Label.CONTENT)
    for at, clause in enumerate(clauses[1 : NUM_OPENING + 1]):
        if clause.words[0] in _BUT and w.REGRETFUL.search(clauses[at].text):
            labels[at] = Label.REFUSING
            opening = labels[:NUM_OPENING]
    is_task = asks_for_a_text(question, system)
    solving = solving or any(
        _turns(c, one) and not w.REGRETFUL.search(before.text)
        for before, c, one in zip(clauses, clauses[1:], labels[1:], strict=False)
    )
    evidence = {"clauses": dict(Counter(map(str, labels))), "words_of_the_matter": content}
    if is_task and _is_quoted(clauses):
        return None
    is_text = is_task or _is_quoted(clauses)
    if Label.STRONG in opening or (Label.REFUSING in opening and not (is_text and not _refuses_this(clauses))):
        before = sum(
            len(c.words)
            for c, one in zip(clauses, takewhile(lambda one: one not in _REFUSES, labels), strict=False)
            if one is Label.CONTENT
        )
        if not solving and content < MIN_CONTENT and before < MIN_CONTENT // 2:
            return Finding("refusal", evidence)
        return None
    if solving or _is_quoted(clauses) or _says_again(question, clauses):
        return None
    if is_task:
        is_text = clauses[0].words[0] in (
            "dear",
            "hi",
            "hey",
            "hello",
            "subject",
            "cher",
            "chère",
            "bonjour",
            "salut",
            "objet",
        )
        asks = Label.ASKING in labels and content == 0 and not is_text and Label.APOLOGY not in labels
        return Finding("asks_back", evidence) if asks and (labels[0] in COURTESY or _asks_plainly(clauses)) else None
    if _only_of_oneself(clauses, labels) and not _ON_WORDS.search(question):
        return Finding("refusal", evidence)
    if Label.ASKING in labels:
        return _asking(clauses, labels, content, evidence)
    if Label.APOLOGY in opening and Label.JUSTIFYING not in labels:
        of_others = (c for c, one in zip(clauses, labels, strict=True) if one is Label.CONTENT and not _of_oneself(c))
        if sum(len(c.words) for c in of_others) < MIN_AFTER_APOLOGY:
            return Finding("refusal", evidence)
    num_words = sum(len(c.words) for c in clauses)
    has_number = any(any(c.isdigit() for c in clause.text) for clause in clauses)
    if (
        num_words >= MIN_COURTESY
        and not has_number
        and all(one in COURTESY for one in labels)
        and not _is_courtesy(question)
    ):
        return Finding("refusal", evidence)
    return None


_REFUSES = (Label.STRONG, Label.REFUSING)


def _asking(clauses: list[Clause], labels: list[Label], content: int, evidence: dict[str, object]) -> Finding | None:
    """Asks back, unless something of the matter is said first, or more than a little of it anywhere."""
    if clauses[0].words[0] in YES_OR_NO:
        return None
    first = next(
        (one for c, one in zip(clauses, labels, strict=True) if one not in COURTESY and not _of_oneself(c)), None
    )
    if first is Label.ASKING and content <= MAX_BESIDE_QUESTION and Label.JUSTIFYING not in labels[:1]:
        return Finding("asks_back", evidence)
    is_short = content + sum(len(c.words) for c, one in zip(clauses, labels, strict=True) if one is Label.JUSTIFYING)
    if (
        labels[-1] is Label.ASKING
        and (labels[0] in COURTESY or _of_oneself(clauses[0]))
        and is_short <= MAX_BESIDE_QUESTION
    ):
        return Finding("asks_back", evidence)
    return None


def _of_oneself(clause: Clause) -> bool:
    mine = w.I | w.JE | w.MINE
    return not mine.isdisjoint(clause.words[:2]) or (len(clause.words) <= 5 and not mine.isdisjoint(clause.words))


def _turns(clause: Clause, one: Label) -> bool:
    """`But the kiosk renews any loan`: what follows a refusal and is none."""
    is_turn = clause.words[0] in _BUT
    return is_turn and one is Label.CONTENT and len(clause.words) >= MIN_TURN and _of_oneself(clause) is False


def _only_of_oneself(clauses: list[Clause], labels: list[Label]) -> bool:
    """A short answer that speaks of its speaker, and of nothing else."""
    if len(clauses) > MAX_OF_ONESELF or any(any(c.isdigit() for c in clause.text) for clause in clauses):
        return False
    said = [c for c, one in zip(clauses, labels, strict=True) if one is Label.CONTENT]
    return bool(said) and all(_speaks_of_oneself(clause) for clause in said)


def _speaks_of_oneself(clause: Clause) -> bool:
    return not (w.I | w.JE).isdisjoint(clause.words) and w.OPINION.search(clause.text) is None


def _says_yes_or_no(clause: Clause) -> bool:
    """And goes on, without a word of its speaker: `No, that is against company policy`."""
    first = clause.words[0]
    goes_on = len(clause.words) > 1 and clause.text[len(first) :][:1] in (",", ":", ";", "!")
    return first in YES_OR_NO and goes_on and (w.I | w.JE).isdisjoint(clause.words)


def _says_what_it_means(question: str, clauses: list[Clause]) -> bool:
    if any(not (w.I | w.JE).isdisjoint(clause.words) for clause in clauses):
        return False
    apologises = any(not w.APOLOGY.isdisjoint(clause.words) or w.ASKING.search(clause.text) for clause in clauses)
    return w.MEANING.search(fold(question)) is not None and not apologises


def _refuses_this(clauses: list[Clause]) -> bool:
    """In few words, and of what was asked for: `I won't be doing that one`."""
    words = [word for clause in clauses for word in clause.words]
    return len(words) <= MAX_PLAIN_REFUSAL and not _THIS.isdisjoint(words)


def _asks_plainly(clauses: list[Clause]) -> bool:
    return any(w.ASKING.search(clause.text) for clause in clauses)


def _is_quoted(clauses: list[Clause]) -> bool:
    return clauses[0].text[0] in "\"'\u00ab\u201c"


def _says_again(question: str, clauses: list[Clause]) -> bool:
    """The question stands in the answer: what it asks is not asked back."""
    asked = fold(question)
    return asked.count(" ") >= 2 and any(asked in clause.text for clause in clauses)


def _after_apology(clause: Clause) -> list[Clause]:
    """`Sorry, the museum is closed`: what comes after the comma is a clause of its own."""
    if w.APOLOGY.isdisjoint(clause.words):
        return [clause]
    pieces = (clause_of(text) for text in _COMMA.split(clause.text))
    return [piece for piece in pieces if piece.words]


def asks_for_a_text(question: str, system: tuple[str, ...]) -> bool:
    return w.TASK.search(fold(question)) is not None or any(
        "translat" in s.lower() or "tradui" in s.lower() for s in system
    )


def _is_courtesy(question: str) -> bool:
    """Thanks and greetings are answered with courtesy."""
    return w.FILLER.search(fold(question)) is not None or len(question.split()) <= 2
