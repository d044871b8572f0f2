"""Answers that enumerate: the same items in any order, whether as a list or in a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cachestack.answers.overlap import covered, share
from cachestack.answers.reading import Answer, read
from cachestack.answers.sameness import Sameness, told_apart
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, fold

MAX_ITEMS = 60
SAME_ITEM = 0.6
"""Share of an item's words that the other must have for the two to be one item."""
MAX_ITEM_WORDS = 9
MAX_FIRST = 3
MAX_SAID = 6
_COMMAS = re.compile(r"[,;] (?:(?:and|or|et|ou|as well as|ainsi que|plus) )?| (?:and|or|et|ou|as well as|ainsi que|&) ")
_JOINED = re.compile(r"[^,;] (?:and|or|et|ou|as well as|ainsi que|&) |[,;] (?:and|or|et|ou|plus) ")
_EXAMPLES = re.compile(
    r"\b(?:such as|including|include|includes|e\.?g\.?|for example|for instance"
    r"|among others|like|etc|and so on|and more"
    r"|notamment|par exemple|tels? que|telles? que|comme|entre autres|incluant)\b"
)


_PRONOUNS = "i you we they he she it je j tu il elle on nous vous ils elles ça cela"
_OPEN_ENDS = "later newer above more others up plus ultérieur supérieur autres"
_MORE = frozenset(_OPEN_ENDS.split())
_SUBJECTS = frozenset(_PRONOUNS.split())


@dataclass(frozen=True, slots=True)
class Enumeration:
    """`is_marked`: written as a list. `is_open`: it says itself that it only gives examples."""

    items: tuple[Text, ...]
    is_marked: bool
    is_open: bool


def listed(answer: Answer, language: str | None) -> Enumeration | None:
    """The items of a list, or of the one sentence that an answer is; None where it is neither."""
    lines = [line for line in answer.lines if line.is_item]
    if len(lines) >= 2:
        rest = " ".join(line.text for line in answer.lines if not line.is_item)
        texts = tuple(read(line.text[:400], language) for line in lines[: MAX_ITEMS + 1])
        return Enumeration(texts, True, _EXAMPLES.search(fold(rest)) is not None)
    if len(answer.units) != 1 or lines:
        return None
    return in_sentence(answer.units[0].raw, language, is_all=True)


def in_sentence(raw: str, language: str | None, *, is_all: bool = False) -> Enumeration | None:
    """What a sentence enumerates; the first item may have the sentence's beginning before it. One that is all of an
    answer may do without `and`."""
    text = fold(raw)
    items = tuple(t for part in _parts(text) if part.strip() and (t := read(part, language)).tokens)
    short = len(items) > 2 and all(len(item.tokens) <= MAX_FIRST for item in items)
    if len(items) < 2 or not (_JOINED.search(text) or short or (is_all and len(items) > 2)):
        return None
    return Enumeration(items, False, _EXAMPLES.search(text) is not None)


def _parts(text: str) -> list[str]:
    """Between commas and `and`; what comes after the item that the last `and` leads to is no item."""
    found, joined, start = [], 0, 0
    for comma in _COMMAS.finditer(text):
        found.append(text[start : comma.start()])
        start = comma.end()
        if comma[0].strip(" ,;"):
            joined = len(found)
    return [*found, text[start:]][: joined + 1 if joined else None]


def compare_lists(x: Answer, y: Answer, language: str | None) -> Sameness | None:
    """None where one of them is no list, or the items have to be compared one by one."""
    ours, theirs = listed(x, language), listed(y, language)
    for one, other, swap in ((ours, y, False), (theirs, x, True)):
        if one is not None and (gone := _one_of_two(one, other, language)):
            return told_apart("list", 0.3, "items", *(([], [gone]) if swap else ([gone], [])))
    if ours is None or theirs is None or max(len(ours.items), len(theirs.items)) > MAX_ITEMS:
        return None
    alone, left = unmatched(ours.items, theirs.items)
    if not alone and not left:
        if any(not (_said_whole(a, theirs.items) and _plain(a)) for a in ours.items):
            return None
        if any(not (_said_whole(b, ours.items) and _plain(b)) for b in theirs.items):
            return None
        return Sameness(True, "list", 0.95, {"items": len(ours.items)})
    missing = _missing(ours, theirs, alone, left)
    return None if missing is None else told_apart("list", 0.3, "items", *missing)


def _one_of_two(two: Enumeration, other: Answer, language: str | None) -> str | None:
    """The item that is left out where an answer is one of the other's two: `a vest and a triangle`, `a vest`."""
    if len(two.items) != 2 or two.is_open or any(len(item.tokens) > MAX_FIRST for item in two.items):
        return None
    if len(other.units) != 1 or len(lone := read(other.units[0].raw, language).tokens) > MAX_FIRST:
        return None
    keys = [
        frozenset().union(*(t.keys for t in tokens if t.role is Role.CONTENT))
        for tokens in (lone, two.items[0].tokens, two.items[1].tokens)
    ]
    if not all(keys):
        return None
    if keys[0] == keys[1] and keys[0].isdisjoint(keys[2]):
        return two.items[1].plain
    return two.items[0].plain if keys[0] == keys[2] and keys[0].isdisjoint(keys[1]) else None


def lacks_item(
    a: str, b: str, keys_a: frozenset[str], keys_b: frozenset[str], language: str | None
) -> tuple[list[str], list[str]] | None:
    """What one of two sentences that enumerate the same leaves out: `A, B and C`, `A and C`. `keys_a`: all words of the
    answer that `a` is from; what it says elsewhere is not left out."""
    ours, theirs = in_sentence(a, language), in_sentence(b, language)
    if ours is None or theirs is None:
        return None
    alone, left = unmatched(ours.items, theirs.items)
    alone = [item for item in alone if _is_unsaid(item, keys_b)]
    left = [item for item in left if _is_unsaid(item, keys_a)]
    return _missing(ours, theirs, alone, left)


def _is_unsaid(item: Text, others: frozenset[str]) -> bool:
    found, total = covered(item, others, frozenset())
    return found < 0.5 * total


def _missing(
    ours: Enumeration, theirs: Enumeration, alone: Sequence[Text], left: Sequence[Text]
) -> tuple[list[str], list[str]] | None:
    if bool(alone) == bool(left) or ours.is_open or theirs.is_open:
        return None
    shared = min(len(ours.items) - len(alone), len(theirs.items) - len(left))
    if shared < 2 or len(alone) + len(left) > shared:
        return None
    if any(_is_clause(item) or not _is_item(item) for item in (*alone, *left)):
        return None
    for side, gone in ((ours, alone), (theirs, left)):
        short = all(len(item.tokens) <= MAX_FIRST for item in side.items)
        if side.is_marked or short:
            continue
        first, last = side.items[0], side.items[-1]
        if any(item is first or (item is last and len(item.tokens) > MAX_SAID) for item in gone):
            return None  # the sentence's beginning stands before the first; a long last one may be a clause
    return [t.plain for t in alone], [t.plain for t in left]


def unmatched(ours: Sequence[Text], theirs: Sequence[Text]) -> tuple[list[Text], list[Text]]:
    """The items without a partner on the other side; the best partners first, each once."""
    pairs = sorted(
        (
            (-max(of), -min(of), i, j)
            for i, a in enumerate(ours)
            for j, b in enumerate(theirs)
            for of in (_shares(a, b),)
        ),
    )
    mine, its = set(range(len(ours))), set(range(len(theirs)))
    for most, _, i, j in pairs:
        if -most >= SAME_ITEM and i in mine and j in its:
            mine.discard(i)
            its.discard(j)
    return [ours[i] for i in sorted(mine)], [theirs[j] for j in sorted(its)]


def _shares(a: Text, b: Text) -> tuple[float, float]:
    return (1.0, 1.0) if a.plain == b.plain else (share(a, b), share(b, a))


def _said_whole(item: Text, others: Sequence[Text]) -> bool:
    return any(max(_shares(item, other)) == 1.0 for other in others)


def _plain(item: Text) -> bool:
    """Whether an item is only a few words, so that one with the same words says the same."""
    return len(item.tokens) <= MAX_ITEM_WORDS + 3 and not any(
        t.role is Role.NUMBER or t.text in item.lexicon.negators for t in item.tokens
    )


def _is_item(item: Text) -> bool:
    if all(t.text in _MORE or t.role is Role.FUNCTION for t in item.tokens):
        return False
    return any(t.role in (Role.CONTENT, Role.NUMBER, Role.DATE) or t.text in item.lexicon.modals for t in item.tokens)


def _is_clause(item: Text) -> bool:
    lex = item.lexicon
    words = [t.text for t in item.tokens]
    if len(words) < 3:
        return False
    return len(words) > MAX_ITEM_WORDS or any(
        w in _SUBJECTS or w in lex.modals or w in lex.question_words for w in words
    )
