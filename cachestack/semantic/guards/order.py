"""Who does what to whom: `from A to B` against `from B to A`, `A better than B` against `B better than A`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cachestack.semantic.align import Match, align
from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token

KIND = "order"
DIRECTIONS = frozenset({"from", "to", "than", "before", "after", "versus", "without", "by", "de"})
GENITIVE = frozenset({"of", "in", "for", "about", "de"})
MEANS = frozenset({"in", "with", "on"})
"""Prepositions that say the same of a tool or a place that is named first: `using X, …`, `… in X`."""
TURNED = frozenset(frozenset(pair) for pair in (("from", "to"), ("than", ""), ("before", ""), ("after", "")))
"""Prepositions (empty: none) that two words exchange when they change places."""
MAX_NAME = 3
"""Words of a group that changes places."""
CLOSE = 0.6
"""Share of the shorter text that must stand in the other for two words in exchanged places to be certain."""
SHORT = 3
"""Words that matter, up to which a preposition alone is held to make a difference."""


def order(cached: Text, asked: Text) -> Verdict:
    """Rejects when words that both sides have stand in other roles: another direction, another head, or another order
    that neither `and`, a kept preposition, a genitive, a passive nor an adverb explains."""
    a, b = cached.matter, asked.matter
    matches = [m for m in align(cached, asked).matches if _counts(a[m.cached]) and _counts(b[m.asked])]
    turned = _exchanged(align(cached, asked).matches, cached, asked) or _turned(matches, cached, asked)
    if turned:
        return rejected(KIND, *turned)
    for m in matches:
        ours, theirs = a[m.cached], b[m.asked]
        if ours.marker != theirs.marker and ours.marker in DIRECTIONS and theirs.marker in DIRECTIONS:
            return rejected(KIND, _led(ours), _led(theirs), certain=False)
        if _placed_elsewhere(ours, theirs, cached, asked):
            return rejected(KIND, _led(ours), _led(theirs), certain=False)
    ours_at, theirs_at = _places(cached), _places(asked)
    if ours_at is None or theirs_at is None:
        if (ours_at is None) != (theirs_at is None):
            return rejected(KIND, cached.plain, asked.plain, certain=False)
        return passed(KIND)
    if all(x.asked < y.asked for x, y in pairwise(matches)):
        return passed(KIND)
    return _swapped(matches, cached, asked, ours_at, theirs_at) or _other_head(matches, cached, asked) or passed(KIND)


def _turned(matches: Sequence[Match], cached: Text, asked: Text) -> tuple[str, str] | None:
    """`from A to B` against `from B to A`: two words that have each other's prepositions."""
    if facing(cached, asked).shared < CLOSE:
        return None
    moved: dict[tuple[str, str], tuple[Token, Token]] = {}
    for m in matches:
        ours, theirs = cached.matter[m.cached], asked.matter[m.asked]
        if ours.marker == theirs.marker or {ours.marker, theirs.marker} not in TURNED:
            continue
        back = moved.get((theirs.marker, ours.marker))
        if back is not None:
            return f"{_led(ours)} … {_led(back[0])}", f"{_led(theirs)} … {_led(back[1])}"
        moved[ours.marker, theirs.marker] = (ours, theirs)
    return None


def _exchanged(matches: Sequence[Match], cached: Text, asked: Text) -> tuple[str, str] | None:
    """The same words, two groups in each other's places: `does A own B` against `does B own A`. What led to the one
    leads to the other."""
    n = len(cached.matter)
    if n != len(asked.matter) or len(matches) != n or any(m.how != "same" for m in matches):
        return None
    order = [m.asked for m in matches]
    moved = [i for i in range(n) if order[i] != i]
    if not moved or len({m.cached for m in matches}) < n:
        return None
    start, end = moved[0], moved[-1]
    for size in range(1, min(MAX_NAME, (end - start + 1) // 2) + 1):
        middle = list(range(start + size, end + 1 - size))
        blocks = [*range(end + 1 - size, end + 1), *middle, *range(start, start + size)]
        if order[start : end + 1] == blocks:
            break
    else:
        return None
    (a, x), (b, y) = ((text.matter[start].marker, text.matter[end + 1 - size].marker) for text in (cached, asked))
    if (a, x) != (b, y) or not (middle or a != x):
        return None
    if _listed(cached) or _listed(asked) or _passive(cached) != _passive(asked):
        return None
    first, second = (" ".join(t.text for t in cached.matter[k : k + size]) for k in (start, end + 1 - size))
    return f"{first} … {second}", f"{second} … {first}"


def _passive(text: Text) -> bool:
    return any(
        token.role is not Role.FUNCTION and _is_passive(text.tokens[:at], token, text)
        for at, token in enumerate(text.tokens)
    )


def _listed(text: Text) -> bool:
    """Whether it names things side by side: `A and B`, `between A and B`, `A or B`."""
    lex = text.lexicon
    return any(t.text in lex.conjunctions or lex.markers.get(t.text) in ("between", "versus") for t in text.tokens)


def _counts(token: Token) -> bool:
    """Adverbs and fillers may stand anywhere."""
    return token.role is not Role.LIGHT and not (len(token.text) > 5 and token.text.endswith("ly"))


def _led(token: Token) -> str:
    return f"{token.marker} {token.text}".strip()


def _swapped(
    matches: Sequence[Match], cached: Text, asked: Text, ours_at: Sequence[float], theirs_at: Sequence[float]
) -> Verdict | None:
    for n, one in enumerate(matches):
        for other in matches[n + 1 :]:
            before = ours_at[one.cached] < ours_at[other.cached]
            if before == (theirs_at[one.asked] < theirs_at[other.asked]) or one.cached == other.cached:
                continue
            if one.asked == other.asked:
                continue
            first, second = (one, other) if before else (other, one)
            if not _explained(first, second, cached, asked):
                words = (cached.matter[first.cached].text, cached.matter[second.cached].text)
                return rejected(KIND, " … ".join(words), " … ".join(reversed(words)), certain=False)
    return None


def _other_head(matches: Sequence[Match], cached: Text, asked: Text) -> Verdict | None:
    """`a black jacket` and `a black motorbike`, where both texts have all three words."""
    partner = {m.cached: m.asked for m in matches}
    back = {m.asked: m.cached for m in matches}
    ours, theirs = _groups(cached), _groups(asked)
    for m in matches:
        group, other = ours.get(m.cached, ()), theirs.get(m.asked, ())
        if not group or not other or group[0] not in partner or other[0] not in back:
            continue
        if partner[group[0]] not in other and back[other[0]] not in group:
            a, b = cached.matter, asked.matter
            words = (f"{a[m.cached].text} {a[group[0]].text}", f"{b[m.asked].text} {b[other[0]].text}")
            return rejected(KIND, *words, certain=False)
    return None


def _groups(text: Text) -> dict[int, tuple[int, ...]]:
    """Each content word of `matter` that stands directly before others, to those others in order."""
    places = {id(token): i for i, token in enumerate(text.matter) if token.role is Role.CONTENT}
    groups: dict[int, tuple[int, ...]] = {}
    for x, y in zip(reversed(text.tokens[:-1]), reversed(text.tokens), strict=False):
        if id(x) in places and id(y) in places and not y.opens:
            groups[places[id(x)]] = (places[id(y)], *groups.get(places[id(y)], ()))
    return groups


def _places(text: Text) -> tuple[float, ...] | None:
    """The place of each token of `matter`, as if the text were in the active voice: `X is sorted by Y` → Y, sort, X.

    None for a passive whose subject is a mere pronoun: it has no active form in the words that are compared.
    """
    places = [float(i) for i in range(len(text.matter))]
    index = {id(token): i for i, token in enumerate(text.matter)}
    for at, token in enumerate(text.tokens[1:], 1):
        if token.role is Role.FUNCTION or not _is_passive(text.tokens[:at], token, text):
            continue
        verb = index[id(token)]
        clause = [i for i, t in enumerate(text.matter) if t.sentence == token.sentence]
        patients = [i for i in clause if i < verb and text.matter[i].marker in ("", "than", "like")]
        if not patients and text.tokens[at - 1].text in text.lexicon.passive_only:
            return None
        for i in patients:
            places[i] = verb + 0.5 + i / 1e3
        for i in clause:
            if i > verb and text.matter[i].marker == "by":
                places[i] = -1 + i / 1e3
        break
    return tuple(places)


def _is_passive(before: Sequence[Token], verb: Token, text: Text) -> bool:
    """A form of `be` and a participle, adverbs between them aside."""
    previous = next((t for t in reversed(before) if not t.text.endswith("ly")), None)
    if previous is None or previous.text not in text.lexicon.passive:
        return False
    return verb.text.endswith(text.lexicon.participles)


def _explained(first: Match, second: Match, cached: Text, asked: Text) -> bool:
    """Whether two words that swap places still say the same. `first` is the earlier one on the cached side."""
    a, b = cached.matter, asked.matter
    ours, theirs = (a[first.cached], a[second.cached]), (b[second.asked], b[first.asked])
    if _same_part(ours[0], theirs[1], cached, asked) or _same_part(ours[1], theirs[0], cached, asked):
        return True
    if _joined(*ours, cached) and _joined(*theirs, asked):
        return True
    # `the price of tea` and `tea price`
    return (_genitive(ours[1], theirs[0]) and _side_by_side(*theirs, asked)) or (
        _genitive(theirs[1], ours[0]) and _side_by_side(*ours, cached)
    )


def _genitive(led: Token, bare: Token) -> bool:
    return led.marker in GENITIVE and bare.marker == ""


def _side_by_side(x: Token, y: Token, text: Text) -> bool:
    """Whether `y` follows `x` directly, a possessive aside."""
    at = next(i for i, token in enumerate(text.tokens) if token is x)
    following = [token for token in text.tokens[at + 1 : at + 3] if token.text != "'s"]
    return bool(following) and following[0] is y


def _same_part(x: Token, y: Token, cached: Text, asked: Text) -> bool:
    """Whether two tokens are led to by the same preposition, or one that says the same where it comes first."""
    if x.marker == y.marker:
        return x.marker != ""
    if x.marker not in MEANS or y.marker not in MEANS:
        return False
    return any(token.marker and text.tokens[0].marker == token.marker for token, text in ((x, cached), (y, asked)))


def _placed_elsewhere(ours: Token, theirs: Token, cached: Text, asked: Text) -> bool:
    """In a short text, `is X in Y` against `is X Y`. A compound (`Y X` for `X in Y`) is not meant."""
    if {ours.marker, theirs.marker} != {"", "in"} or max(len(cached.matter), len(asked.matter)) > SHORT:
        return False
    bare, text = (ours, cached) if not ours.marker else (theirs, asked)
    at = next(i for i, token in enumerate(text.tokens) if token is bare)
    if at and text.tokens[at - 1].text in text.lexicon.articles:
        return True
    neighbours = text.tokens[max(at - 1, 0) : at] + text.tokens[at + 1 : at + 2]
    return all(t.role is Role.FUNCTION for t in neighbours)


def _joined(x: Token, y: Token, text: Text) -> bool:
    """Whether one `and`, `or` or the like joins the groups that two tokens belong to."""
    places = [i for i, token in enumerate(text.tokens) if token is x or token is y]
    between = text.tokens[places[0] + 1 : places[-1]]
    joints = [t for t in between if t.text in text.lexicon.conjunctions]
    others = [t for t in between if t.role is Role.FUNCTION and t.text not in text.lexicon.conjunctions]
    return len(joints) == 1 and all(t.text in text.lexicon.articles for t in others)
