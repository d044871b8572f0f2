"""Negation: `do not`, `never`, `ne … pas`, and words that a prefix turns round (`nullable`, `non nullable`)."""

from __future__ import annotations

from cachestack.semantic.align import align
from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token

KIND = "negation"


def negation(cached: Text, asked: Text) -> Verdict:
    """Rejects when one side negates more often, when other words are negated, or when a word and its negated form
    stand against each other."""
    ours, theirs = _negated(cached), _negated(asked)
    if len(ours) != len(theirs):
        words = (tuple(n for n, _ in ours), tuple(n for n, _ in theirs))
        return rejected(KIND, *words, certain=len(ours) % 2 != len(theirs) % 2)
    for (word, target), (other, other_target) in zip(ours, theirs, strict=True):
        if target and other_target and not _same(target, other_target):
            return rejected(KIND, f"{word} {target.text}", f"{other} {other_target.text}", certain=False)
    found = align(cached, asked)
    for a in found.only_cached:
        for b in found.only_asked:
            if _prefixed(a, b, cached) or _prefixed(b, a, cached):
                return rejected(KIND, a.text, b.text)
    return passed(KIND)


def _negated(text: Text) -> list[tuple[str, Token | None]]:
    """Each negator with the next word that matters."""
    found: list[tuple[str, Token | None]] = []
    for i, token in enumerate(text.tokens):
        if token.text in text.lexicon.negators:
            target = next((t for t in text.tokens[i + 1 :] if t.role is not Role.FUNCTION), None)
            found.append((token.text, target))
    return found


def _same(a: Token, b: Token) -> bool:
    return not a.keys.isdisjoint(b.keys) or not a.related.isdisjoint(b.related)


def _prefixed(long: Token, short: Token, text: Text) -> bool:
    return any(
        form.startswith(prefix) and form[len(prefix) :].lstrip("-") in short.keys
        for form in long.keys
        for prefix in text.lexicon.prefixes
        if len(form) >= len(prefix) + 4
    )
