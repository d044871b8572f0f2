"""Whether a question stands alone, from its text: what it points at, what it leaves out, what it takes for known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

from cachestack.semantic.context.facts import sentence_tokens
from cachestack.semantic.lexicon.base import Lexicon, lexicon
from cachestack.semantic.lexicon.talk import Talk, talk
from cachestack.semantic.words import Role, Token, fold

ENOUGH = 2
"""Words of meaning that a question needs to stand alone, and its last sentence by itself."""
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
RICH = 3
ANTECEDENT = 3
"""Words of meaning before a pronoun, in the same turn, from which on it may point at them."""
MAX_ASIDE = 7
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d[\w.,]*")
_YES_OR_NO = frozenset(["yes", "no", "oui", "non", "ok", "okay", "ouais", "yeah", "nope", "sure", "please"])
_THEREFORE = frozenset(["so", "then", "therefore", "donc", "alors"])
_WITHIN = ("does ", "do ", "did ", "will ", "would ", "can ", "if ")
"""Before `that`: it may point at what the same sentence has said."""
_CAN_I = re.compile(
    r"\b(?:can|should|do|may|must|will|am|peux|dois|puis|faut|fais) ?-?(?:i|we|je|il|nous)\b|\bje (?:peux|dois)"
)
_NAMED = re.compile(r"\b(?:[Tt]he|[Ll]es?|[Ll]a|[Ll]') ?[A-ZÀ-Ý]")
_WHETHER = frozenset(["is", "are", "does", "do", "was", "were", "est", "sont", "est-ce"])
_YOU = frozenset(["you", "your", "vous", "votre", "vos", "tu", "ton", "ta", "tes"])
_WAYS = frozenset(["how", "where", "comment", "où"])
"""A question that begins so asks for a way of doing something, which is the same for everybody."""
_SOLID = (Role.CONTENT, Role.NUMBER, Role.DATE)
_DEFINITE = frozenset(["the", "le", "la", "les", "l'"])
_BEFORE_ORDINALS = _DEFINITE | frozenset(["my", "your", "which", "that", "this", "mon", "ma", "mes", "au", "du"])


@dataclass(frozen=True, slots=True)
class Leaning:
    """`alone`: it can be understood without the turns before it. Else `why`, in one word.

    `answers`: it may be the answer to a question that was asked back. `orders`: it points at one of a row.
    `is_personal`: it asks about the asker. `remarks`: a remark stands before the question, which may be an answer.
    `is_a_way`: it asks how or where something is done.
    """

    alone: bool
    why: str = ""
    answers: bool = False
    orders: bool = False
    is_personal: bool = False
    remarks: bool = False
    is_a_way: bool = False


@lru_cache(maxsize=2048)
def leaning_of(text: str, language: str | None) -> Leaning:
    """How a last turn leans. In doubt it leans."""
    lex, words = lexicon(language), talk(language)
    turned = _after_turning(text, words)
    sentences = [s for s in _SENTENCE.split((turned or text).strip()) if s.strip()]
    read = [sentence_tokens(sentence, lex) for sentence in sentences]
    spoken = [token for tokens in read for token in tokens]
    texts = {token.text for token in spoken}
    is_personal = not texts.isdisjoint(words.personal)
    orders = any(_orders(tokens, words, lex) for tokens in read)
    answers = _answers(spoken, words)
    remarks = False
    while len(read) > 1 and _is_aside(sentences[0], read[0], words):
        remarks |= any(t.text not in words.polite for t in read[0])
        sentences, read = sentences[1:], read[1:]
    why = "an answer" if answers else _why(sentences, read, lex, words, is_personal)
    return Leaning(not why, why, answers, orders, is_personal, remarks, not texts.isdisjoint(_WAYS))


def _orders(tokens: list[Token], words: Talk, lex: Lexicon) -> bool:
    """`the last one`, `option 2`; not `how long does it last`."""
    return any(
        (token.text in words.ordinals or token.text in lex.ordinals)
        and (i == 0 or tokens[i - 1].text in _BEFORE_ORDINALS or tokens[i - 1].text in words.ordinals)
        for i, token in enumerate(tokens)
    )


def _asks(sentence: str, tokens: list[Token], lex: Lexicon) -> bool:
    """Hasty questions have no question mark."""
    return "?" in sentence or any(t.text in lex.question_words for t in tokens) or bool(_CAN_I.search(fold(sentence)))


def _after_turning(text: str, words: Talk) -> str:
    """`Thanks. By the way, …`: what follows the last turn to another matter; empty where there is none."""
    folded = fold(text)
    end = max((match.end() for match in words.turning.finditer(folded)), default=0)
    return folded[end:] if end and any(c.isalnum() for c in folded[end:]) else ""


def _answers(spoken: list[Token], words: Talk) -> bool:
    if not spoken:
        return False
    if all(t.text in words.answers or t.role is Role.NUMBER for t in spoken):
        return True
    return spoken[0].text in _YES_OR_NO and sum(_means(t, words) for t in spoken) < RICH


def _is_aside(sentence: str, tokens: list[Token], words: Talk) -> bool:
    """`Great, thanks.` `They are coming.` Before a question that says enough it does not matter."""
    return (
        "?" not in sentence
        and len(tokens) <= MAX_ASIDE
        and all(t.role not in (Role.NUMBER, Role.DATE) and t.text not in words.ordinals for t in tokens)
        and sum(_means(t, words) for t in tokens) <= 2
    )


def _why(sentences: list[str], read: list[list[Token]], lex: Lexicon, words: Talk, is_personal: bool) -> str:
    if not read or not read[0]:
        return "nothing to read"
    matter = [t for tokens in read for t in tokens if _means(t, words)]
    last = [t for t in read[-1] if _means(t, words)]
    first = read[0][0].text
    if read[-1][:1] and read[-1][0].text in words.personal and not _asks(sentences[-1], read[-1], lex):
        return "tells"
    if is_personal and (len(read) > 1 or first in words.leading):
        return "goes on"
    takes_for_known = _takes_for_known(sentences[-1], read[-1], words, len(matter))
    if first in _THEREFORE or (first in words.leading and (len(matter) <= RICH or takes_for_known)):
        return "goes on"
    if any(t.text in words.pointing_out for tokens in read for t in tokens) or any(
        map(_points, sentences, read, repeat(words))
    ):
        return "points back"
    if len(matter) <= RICH and any(_orders(tokens, words, lex) for tokens in read):
        return "one of a row"
    if len(last) <= RICH and words.of_mine.search(fold(sentences[-1])):
        return "something of the asker's"
    if len(matter) < ENOUGH or not last:
        return "few words"
    if len(last) < ENOUGH and (len(read) > 1 or len(read[-1]) <= 3):
        return "few words"
    clause = sentences[-1].rpartition(",")[2]
    if is_personal and sum(t.role in _SOLID for t in sentence_tokens(clause, lex) if _means(t, words)) < ENOUGH:
        return "few words"
    if is_personal and len(matter) < RICH and first not in _WAYS:
        return "few words"
    if len(matter) < RICH and first in _WHETHER and not any(t.text in _YOU for t in read[-1]):
        return "few words"
    if len(matter) <= RICH and takes_for_known:
        return "takes for known"
    return ""


def _points(sentence: str, tokens: list[Token], words: Talk) -> bool:
    """A pronoun does not point back where enough was named before it in the same sentence."""
    folded = words.expletive.sub(" ", fold(sentence))
    named = [t.text for t in tokens if _means(t, words)]
    for match in words.points_on.finditer(folded):
        before = sum(name in folded[: match.start()] for name in named)
        if before < ANTECEDENT or not match[0].startswith(_WITHIN):
            return True
    before = 0
    for match in _WORD.finditer(folded):
        if before < len(named) and match[0] == named[before]:
            before += 1
        elif match[0] in words.pointing and before < (1 if folded[: match.start()].endswith("-") else ANTECEDENT):
            return True  # French turns subject and verb round: `la mer est-elle salée`
    return False


def _means(token: Token, words: Talk) -> bool:
    return token.role not in (Role.FUNCTION, Role.LIGHT, Role.WEAK) and token.text not in words.polite


def _takes_for_known(sentence: str, tokens: list[Token], words: Talk, num_matter: int) -> bool:
    """`the warranty`, `the battery life` with nothing that says of what: as if it had been spoken of."""
    if _NAMED.search(sentence):
        return False  # `the Danube`, `Les Misérables`
    for i, token in enumerate(tokens[:-1]):
        if token.text not in _DEFINITE or not _means(tokens[i + 1], words) or tokens[i + 1].role is Role.DATE:
            continue
        if num_matter >= RICH and i and tokens[i - 1].text in words.narrows:
            continue  # `on the menu`
        after = tokens[i + 2 :]
        narrowed = any(
            t.text in words.narrows and any(_means(u, words) for u in after[k:]) for k, t in enumerate(after)
        )
        if not narrowed or tokens[i + 1].text.endswith("'s"):
            return True
    return False
