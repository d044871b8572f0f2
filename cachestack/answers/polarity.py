"""Yes or no: said in the first word, or by a sentence that says the question's words again with or without `not`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cachestack.answers.markdown import Line
from cachestack.answers.reading import Answer, read
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, fold

Polarity = Literal["yes", "no"]
_FIRST = re.compile(
    r"(?P<yes>yes|yep|yeah|yup|correct|that's right|true|indeed|oui|tout à fait|exact|exactement|vrai|c'est exact)\b"
    r"|(?P<no>no|nope|nah|not really|incorrect|false|non|pas du tout|faux|c'est faux)\b"
    r"(?! (?:later|more|less|longer|one|matter|need|plus))"
    r"|(?P<soft>absolutely|of course|certainly|definitely|sure|bien sûr|certainement|absolument|évidemment)\b(?! not)"
    r"|(?P<never>(?:i'm|i am) afraid not|absolutely not|of course not|certainly not|definitely not"
    r"|bien sûr que non|certainement pas|absolument pas)\b"
)
_ELLIPTIC = re.compile(
    r"(?:it|they|you|we|i|he|she|that|this|there|one)(?:'s|'re|'m| is| are| am| was| were| do| does| did"
    r"| can| could| should| will| would| may"
    r"| must| has| have)(?P<no> not|n't)?(?=$|[.,:;!])(?!, (?:who|which))"
    r"|(?:it|they|you|we|i|he|she|that|there|one) (?P<also>can't|cannot|isn't|aren't|don't|doesn't|didn't"
    r"|won't|wasn't|hasn't|haven't)(?=$|[.,:;!])"
    r"|c'est (?:bien )?le cas(?=$|[.,:;!])|(?P<fr>ce n'est pas le cas)(?=$|[.,:;!])"
)
_BETWEEN = re.compile(r"(?:yes and no|oui et non|it depends|ça dépend|cela dépend)\b")


@dataclass(frozen=True, slots=True)
class FirstWord:
    """`is_bare`: nothing else is said. `is_soft`: `of course`, which also opens what is no answer to yes or no."""

    polarity: Polarity
    is_bare: bool
    is_soft: bool
    rest: str


def first_word(answer: Answer) -> FirstWord | None:
    """None where an answer does not begin with yes or no, its frames aside."""
    return _first_word(answer.parts.lines) or _first_word(answer.lines)


def _first_word(lines: Sequence[Line]) -> FirstWord | None:
    text = fold(" ".join(line.text for line in lines[:2])[:400])
    if (short := _ELLIPTIC.match(text)) is not None:
        rest = text[short.end() :].strip(" ,.;:!-–—")
        return FirstWord("no" if short["no"] or short["also"] or short["fr"] else "yes", not rest, False, rest)
    found = _FIRST.match(text)
    if found is None or _BETWEEN.match(text):
        return None
    rest = text[found.end() :].strip(" ,.;:!-–—")
    if found["soft"]:
        inner = _FIRST.match(rest)
        if inner is not None and (inner["yes"] or inner["no"]):
            return FirstWord(
                "no" if inner["no"] else "yes", not rest[inner.end() :].strip(" .!,"), False, rest[inner.end() :]
            )
    is_no = bool(found["no"] or found["never"])
    if rest and text[found.end() : found.end() + 1] == " " and not found["soft"] and not found["never"] and is_no:
        return None  # `no fee is charged`, `non seulement`: part of a sentence
    return FirstWord("no" if is_no else "yes", not rest, bool(found["soft"]), rest)


def repeated(answer: Answer, question: str | None, language: str | None) -> Polarity | None:
    """What a first sentence says that repeats all that the question names: `Is smoking allowed?`, `Smoking is not
    allowed anywhere`. None where it names something else."""
    if not question or not answer.units:
        return None
    asked, said = read(question, language), read(answer.units[0].raw, language)
    if not asked.slots or asked.slots.isdisjoint({"can", "is", "should", "will"}) or len(asked.tokens) > 30:
        return None
    named = [t for t in asked.matter if t.role in (Role.CONTENT, Role.NUMBER, Role.DATE, Role.SCOPE)]
    keys = frozenset(key for t in said.tokens for key in t.keys)
    if not named or any(keys.isdisjoint(t.keys) for t in named):
        return None
    if _negators(said) > 1:
        return None
    return "yes" if _negators(asked) % 2 == _negators(said) else "no"


def begins_with_none(answer: Answer) -> bool:
    """`No dictionaries of any kind`: short, and a `no` to whatever was asked."""
    found = _FIRST.match(answer.normal)
    return found is not None and bool(found["no"]) and answer.num_words <= 8


def _negators(text: Text) -> int:
    return sum(t.text in text.lexicon.negators for t in text.tokens)
