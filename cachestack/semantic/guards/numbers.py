"""Numbers, units, currencies, percentages: `2` is `two`, `$100` is `100 USD`, 30 minutes are not 30 hours."""

from __future__ import annotations

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token

KIND = "numbers"


def numbers(cached: Text, asked: Text) -> Verdict:
    """Rejects when a number has no equal on the other side. A unit that only one side names is a doubt."""
    ours, theirs = _numbers(cached), _numbers(asked)
    left = list(theirs)
    alone: list[Token] = []
    unsure: list[tuple[Token, Token]] = []
    for token in ours:
        same = [t for t in left if t.value == token.value]
        match = next((t for t in same if t.units == token.units or not t.units.isdisjoint(token.units)), None)
        if match is None:
            match = next((t for t in same if not (t.units and token.units)), None)
            if match is not None:
                unsure.append((token, match))
        if match is None:
            alone.append(token)
        else:
            left.remove(match)
    if alone or left:
        # A number against another is settled; a number against nothing is a detail that one side leaves out.
        return rejected(KIND, [_written(t) for t in alone], [_written(t) for t in left], certain=bool(alone and left))
    for a, b in unsure:
        if not _named_elsewhere(a, b, cached, asked):
            return rejected(KIND, _written(a), _written(b), certain=False)
    return passed(KIND)


def _numbers(text: Text) -> list[Token]:
    return [t for t in text.tokens if t.role is Role.NUMBER]


def _named_elsewhere(a: Token, b: Token, cached: Text, asked: Text) -> bool:
    """`banning 500 and 1000 notes` in a text that says `rupees` further on."""
    named, text = (a, asked) if a.units else (b, cached)
    keys = {f"unit {unit}" for unit in named.units}
    return any(not keys.isdisjoint(token.keys) for token in text.tokens) or any(
        not named.units.isdisjoint(token.units) for token in text.tokens
    )


def _written(token: Token) -> str:
    return f"{token.text} {'/'.join(sorted(token.units))}".strip()
