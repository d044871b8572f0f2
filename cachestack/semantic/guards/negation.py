"""Negation: `do not`, `never`, `ne … pas`, and words that a prefix turns round (`nullable`, `non nullable`)."""

from __future__ import annotations

from functools import lru_cache

from cachestack.semantic.align import align
from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.lexicon.base import Lexicon
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token

KIND = "negation"
CLOSE = 0.8
"""Share of the shorter text that must stand in the other for a missing `not` to turn the question round."""
MAX_TOKENS = 40
"""Of either text: in a long one a missing `not` may be in a detail."""
OR = frozenset({"or", "ou"})
"""Before `not` at the end it only asks whether: `open or not`."""


def negation(cached: Text, asked: Text) -> Verdict:
    """Rejects when one side negates more often, when other words are negated, or when a word and its negated form
    stand against each other. It is certain where that is all that differs."""
    ours, theirs = _negated(cached), _negated(asked)
    found = align(cached, asked)
    if len(ours) != len(theirs):
        words = (tuple(n for n, _ in ours), tuple(n for n, _ in theirs))
        odd = len(ours) % 2 != len(theirs) % 2
        return rejected(KIND, *words, certain=odd and _turned(cached, asked))
    for (word, target), (other, other_target) in zip(ours, theirs, strict=True):
        if target and other_target and not _same(target, other_target):
            return rejected(KIND, f"{word} {target.text}", f"{other} {other_target.text}", certain=False)
    for a in found.only_cached:
        for b in found.only_asked:
            if _prefixed(a, b, cached) or _prefixed(b, a, asked):
                return rejected(KIND, a.text, b.text, certain=_face(a, b, cached, asked))
    return passed(KIND)


def _turned(cached: Text, asked: Text) -> bool:
    """Whether the texts are close, and the `not` is no mere politeness: `can't I` asks what `can I` asks."""
    if facing(cached, asked).shared < CLOSE or max(len(cached.tokens), len(asked.tokens)) > MAX_TOKENS:
        return False
    if any(t.text in text.lexicon.limits for text in (cached, asked) for t in text.tokens):
        return False  # `without a visa` and `with no visa`
    return not any(_polite(text) for text in (cached, asked))


def _polite(text: Text) -> bool:
    lex = text.lexicon
    opening = [t for t in text.tokens if t.sentence == (text.tokens[-1].sentence if text.tokens else 0)][:4]
    return bool(opening) and opening[0].text in lex.openers and any(t.text in lex.negators for t in opening)


def _negated(text: Text) -> list[tuple[str, Token | None]]:
    """Each negator with the next word that matters."""
    found: list[tuple[str, Token | None]] = []
    negators = text.lexicon.negators
    for i, token in enumerate(text.tokens):
        if token.text in negators and not (i and text.tokens[i - 1].text in OR):
            target = next((t for t in text.tokens[i + 1 :] if t.role is not Role.FUNCTION), None)
            found.append((token.text, target))
    return found


def _same(a: Token, b: Token) -> bool:
    return not a.keys.isdisjoint(b.keys) or not a.related.isdisjoint(b.related)


def _face(a: Token, b: Token, cached: Text, asked: Text) -> bool:
    return any(
        any(t is a for t in gap.cached) and any(t is b for t in gap.asked) for gap in facing(cached, asked).replaced()
    )


def _prefixed(long: Token, short: Token, text: Text) -> bool:
    stripped = _stripped(long.keys, text.lexicon)
    return bool(stripped) and not stripped.isdisjoint(short.keys)


@lru_cache(maxsize=1 << 14)
def _stripped(keys: frozenset[str], lex: Lexicon) -> frozenset[str]:
    """The forms of a word without a prefix that turns it round."""
    return frozenset(
        form[len(prefix) :].lstrip("-")
        for form in keys
        for prefix in lex.prefixes
        if len(form) >= len(prefix) + 4 and form.startswith(prefix)
    )
