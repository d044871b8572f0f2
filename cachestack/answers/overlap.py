"""How much of what one text says another says too, by its words alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token

WEIGHTS = {
    Role.FUNCTION: 0.0,
    Role.LIGHT: 0.25,
    Role.WEAK: 0.5,
    Role.SCOPE: 0.5,
    Role.CONTENT: 1.0,
    Role.NUMBER: 1.0,
    Role.DATE: 1.0,
}
GIVEN = 0.25
"""Of a word that the question has named: an answer may say it again or not."""


@lru_cache(maxsize=4096)
def keys_of(text: Text) -> frozenset[str]:
    """All forms under which a text's words are known, synonyms too."""
    return frozenset(key for t in text.tokens for key in t.keys | t.related)


def keys_of_all(texts: Iterable[Text]) -> frozenset[str]:
    return frozenset().union(*map(keys_of, texts))


def weight(token: Token, given: frozenset[str]) -> float:
    full = WEIGHTS[token.role]
    return full if given.isdisjoint(token.keys) else full * GIVEN


def covered(text: Text, other: frozenset[str], given: frozenset[str]) -> tuple[float, float]:
    """The weight of the words of `text` that are in `other`, and of all of them."""
    found = total = 0.0
    for token in text.matter:
        its = weight(token, given)
        total += its
        if not (other.isdisjoint(token.keys) and other.isdisjoint(token.related)):
            found += its
    return found, total


def share(text: Text, other: Text) -> float:
    """The part of `text` that `other` says, 0 to 1; 0 for a text that says nothing."""
    found, total = covered(text, keys_of(other), frozenset())
    return found / total if total else 0.0


def likeness(a: Text, b: Text) -> float:
    """The larger of both shares, and a little of the smaller: one may say more than the other."""
    one, other = share(a, b), share(b, a)
    return 0.75 * max(one, other) + 0.25 * min(one, other)
