"""What the question is limited to: `all`, `only`, `without`, `first`; what can be or should be; `this` one."""

from __future__ import annotations

from cachestack.semantic.align import align
from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role


def scope(cached: Text, asked: Text) -> Verdict:
    """Rejects when a word that sets scope, order, comparison or condition is on one side only. It is certain where a
    limit (`only`, `without`) is all that one side adds."""
    alone, other = align(cached, asked).blamed(Role.SCOPE)
    if alone or other:
        return rejected("scope", alone, other, certain=bool(alone) != bool(other) and _limited(cached, asked))
    return passed("scope")


def _limited(cached: Text, asked: Text) -> bool:
    found = facing(cached, asked)
    added = [(g.cached or g.asked) for g in found.gaps if not (g.cached and g.asked)]
    if found.shared < 1 or len(added) != len(found.gaps):
        return False
    limits = cached.lexicon.limits | asked.lexicon.limits
    return any(t.text in limits for gap in added for t in gap)


def modality(cached: Text, asked: Text) -> Verdict:
    """Rejects when one side asks what can be, the other what should be or will be."""
    ours, theirs = _modals(cached), _modals(asked)
    return passed("modality") if ours == theirs else rejected("modality", ours, theirs, certain=False)


def pointing(cached: Text, asked: Text) -> Verdict:
    """Rejects when one side points at something (`this plant`) and the other does not."""
    ours, theirs = _pointed(cached), _pointed(asked)
    return passed("pointing") if ours == theirs else rejected("pointing", ours, theirs, certain=False)


def _modals(text: Text) -> frozenset[str]:
    table = text.lexicon.modals
    return frozenset(table[t.text] for t in text.tokens if t.text in table)


def _pointed(text: Text) -> bool:
    """Whether a demonstrative stands there that is not part of a date (`this year`)."""
    lex = text.lexicon
    return any(
        token.text in lex.demonstratives and lex.periods.isdisjoint(follower.keys)
        for token, follower in zip(text.tokens, text.tokens[1:], strict=False)
    )
