"""What the guards and the alignment say of a pair, as numbers that a trained model can weigh.

All features are symmetric: a pair of sides gives its smaller (`_min`) and larger (`_max`) value. For two equal texts
every difference is 0 and every similarity 1.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache

from cachestack.semantic.align import Alignment, align
from cachestack.semantic.guards.base import Guard, Verdict
from cachestack.semantic.guards.facing import facing, keys_of
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token, frequency

RARE = 5000
"""A word seen less often than this (of some 10^8) is rare: most names are."""


def pair_features(cached: Text, asked: Text) -> dict[str, float]:
    """All features but those of the verdicts, in their order."""
    found = align(cached, asked)
    sides = ((cached, found.only_cached), (asked, found.only_asked))
    values: dict[str, float] = {}

    def both(name: str, one: float, other: float) -> None:
        values[f"{name}_min"], values[f"{name}_max"] = min(one, other), max(one, other)

    for role in (Role.CONTENT, Role.WEAK, Role.SCOPE, Role.LIGHT, Role.NUMBER, Role.DATE):
        both(f"unmatched_{role.value}", *(float(sum(t.role is role for t in alone)) for _, alone in sides))
    both("unmatched_rare", *(float(sum(_is_rare(t, text) for t in alone)) for text, alone in sides))
    both("unmatched_unknown", *(float(sum(_is_unknown(t, text) for t in alone)) for text, alone in sides))
    both("unmatched_idf", *(sum(_idf(t, text) for t in alone) for text, alone in sides))
    both("unmatched_idf_top", *(max((_idf(t, text) for t in alone), default=0.0) for text, alone in sides))
    both("matched_share", *(_share(text, alone) for text, alone in sides))
    both("num_matter", *(float(len(text.matter)) for text, _ in sides))
    both("num_tokens", *(float(len(text.tokens)) for text, _ in sides))
    both("num_sentences", *(1.0 + max((t.sentence for t in text.tokens), default=0) for text, _ in sides))
    both("num_numbers", *(float(sum(t.role is Role.NUMBER for t in text.tokens)) for text, _ in sides))
    both("num_negators", *(float(_negators(text)) for text, _ in sides))
    for how in ("same", "related", "compound", "initials", "spelling"):
        values[f"matches_{how}"] = float(sum(m.how == how for m in found.matches))
    values["inversions"] = _inversions(found)
    values["markers_differ"] = float(
        sum(cached.matter[m.cached].marker != asked.matter[m.asked].marker for m in found.matches)
    )
    ours, theirs = [t.text for t in cached.tokens], [t.text for t in asked.tokens]
    values["word_overlap"] = _jaccard(set(ours), set(theirs))
    values["matter_overlap"] = _overlap(found, cached, asked)
    values["trigram_similarity"] = _trigrams(cached.plain, asked.plain)
    values["longest_run_share"] = _longest_run(ours, theirs)
    values["length_ratio"] = _ratio(len(cached.plain), len(asked.plain))
    values["matter_ratio"] = _ratio(len(cached.matter), len(asked.matter))
    values["negation_parity_differs"] = float(_negators(cached) % 2 != _negators(asked) % 2)
    values["negators_differ"] = float(abs(_negators(cached) - _negators(asked)))
    values["opposite_pairs"] = float(_opposite_pairs(cached, asked))
    values["slots_differ"] = float(cached.slots != asked.slots)
    values["slots_disjoint"] = float(bool(cached.slots and asked.slots and not cached.slots & asked.slots))
    values["both_questions"] = float(bool(cached.slots and asked.slots))
    values["one_question"] = float(bool(cached.slots) != bool(asked.slots))
    values["same_first_word"] = float(ours[:1] == theirs[:1])
    values["same_last_word"] = float(ours[-1:] == theirs[-1:])
    values["tense_differs"] = float(_tenses(cached) != _tenses(asked))
    values["function_differ"] = float(_function_difference(cached, asked))
    values["is_french"] = float("fr" in (cached.language, asked.language))
    _of_facing(cached, asked, found, values)
    return values


def _of_facing(cached: Text, asked: Text, found: Alignment, values: dict[str, float]) -> None:
    """What stands against what when the two texts are laid side by side."""
    laid = facing(cached, asked)
    replaced = laid.replaced()
    values["side_by_side"] = laid.shared
    values["gaps"] = float(len(laid.gaps))
    values["gaps_replaced"] = float(len(replaced))
    values["gaps_added"] = float(sum(not (g.cached and g.asked) for g in laid.gaps))
    mine, other = {id(t) for t in found.only_cached}, {id(t) for t in found.only_asked}
    faced = [
        (a[0], b[0])
        for gap in replaced
        for a, b in [([t for t in gap.cached if id(t) in mine], [t for t in gap.asked if id(t) in other])]
        if len(a) == len(b) == 1
    ]
    values["faced_words"] = float(len(faced))
    idf = [min(_idf(a, cached), _idf(b, asked)) for a, b in faced]
    values["faced_idf_top"] = max(idf, default=0.0)
    values["faced_letters_low"] = min((_trigrams(a.text, b.text) for a, b in faced), default=1.0)
    values["first_difference"] = _first_difference(cached, asked)
    values["case_differs"] = float(cached.folded == asked.folded and cached.raw != asked.raw)
    values["modal_words_differ"] = float(len(_modal_words(cached) ^ _modal_words(asked)))
    ours, theirs = _written(cached), _written(asked)
    values["code_case_differs"] = float(sum(ours[word] != theirs[word] for word in ours.keys() & theirs.keys()))


@lru_cache(maxsize=256)
def _modal_words(text: Text) -> frozenset[str]:
    """`must` is not `should`, though both are one kind to the guard of modality."""
    return frozenset(t.text for t in text.tokens if t.text in text.lexicon.modals)


_CODE = re.compile(r"(?<!\S)-[^\W\d_](?!\w)|\b[^\W\d_]*[a-z][A-Z]\w*|\b[^\W\d_]+(?=\()|\b[^\W_]*\d\w*")
"""What looks like code: `-a`, `camelCase`, `Foo(`, `x86`."""


@lru_cache(maxsize=256)
def _written(text: Text) -> dict[str, str]:
    """What looks like code, folded, with its letter case. Nothing where the text is in capitals or has no others."""
    if text.raw == text.raw.upper():
        return {}
    return {word.casefold(): word for word in _CODE.findall(text.raw)}


def _first_difference(cached: Text, asked: Text) -> float:
    """Where the first word differs, as a share of the shorter text; 1 where one begins with all of the other."""
    shorter = min(len(cached.tokens), len(asked.tokens))
    if not shorter:
        return 1.0
    same = 0
    while same < shorter and cached.tokens[same].text == asked.tokens[same].text:
        same += 1
    return same / shorter


def verdict_features(verdicts: tuple[Verdict, ...], names: tuple[str, ...]) -> dict[str, float]:
    """`<kind>_doubt` and `<kind>_certain`, 0 or 1: rejected without and with certainty."""
    values: dict[str, float] = {}
    for name, verdict in zip(names, verdicts, strict=True):
        values[f"{name}_doubt"] = float(not verdict.passed and not verdict.certain)
        values[f"{name}_certain"] = float(not verdict.passed and verdict.certain)
    return values


def guard_name(guard: Guard) -> str:
    return getattr(guard, "__name__", "guard")


def _is_rare(token: Token, text: Text) -> bool:
    return token.role is Role.CONTENT and frequency(token.text, text.language) < RARE


def _is_unknown(token: Token, text: Text) -> bool:
    return token.role is Role.CONTENT and frequency(token.text, text.language) == 0


def _idf(token: Token, text: Text) -> float:
    """0 for the commonest words to 1 for words never seen; numbers and dates count as rare."""
    if token.role in (Role.NUMBER, Role.DATE):
        return 1.0
    return 0.1 if token.role is Role.LIGHT else _rarity(token.text, text.language)


@lru_cache(maxsize=1 << 15)
def _rarity(word: str, language: str | None) -> float:
    return 1 - min(1.0, math.log1p(frequency(word, language)) / math.log(1e8))


def _share(text: Text, alone: tuple[Token, ...]) -> float:
    """The part of a side's words, weighted by rarity, that has a partner."""
    whole = sum(_idf(t, text) for t in text.matter)
    return 1.0 if whole <= 0 else max(0.0, 1 - sum(_idf(t, text) for t in alone) / whole)


@lru_cache(maxsize=256)
def _negators(text: Text) -> int:
    return sum(t.text in text.lexicon.negators for t in text.tokens)


def _inversions(found: Alignment) -> float:
    """Pairs of matched words that stand in another order, as a share of all pairs of matched words."""
    places = [m.asked for m in found.matches]
    pairs = len(places) * (len(places) - 1) / 2
    swapped = sum(x > y for i, x in enumerate(places) for y in places[i + 1 :])
    return swapped / pairs if pairs else 0.0


def _jaccard(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


def _overlap(found: Alignment, cached: Text, asked: Text) -> float:
    whole = len(cached.matter) + len(asked.matter)
    alone = len(found.only_cached) + len(found.only_asked)
    return 1.0 if not whole else (whole - alone) / whole


def _trigrams(one: str, other: str) -> float:
    """Dice similarity of the two texts' bags of three letters."""
    (ours, mine), (theirs, other_total) = _threes(one), _threes(other)
    if not mine + other_total:
        return 1.0
    return 2 * sum(min(n, theirs[three]) for three, n in ours.items() if three in theirs) / (mine + other_total)


@lru_cache(maxsize=256)
def _threes(text: str) -> tuple[dict[str, int], int]:
    """How often each run of three characters stands in a text with a space before and after, and how many there are."""
    padded = f" {text} "
    return dict(Counter(padded[i : i + 3] for i in range(len(text)))), len(text)


def _longest_run(ours: list[str], theirs: list[str]) -> float:
    """Words of the longest stretch that both have, as a share of the shorter text."""
    if not ours or not theirs:
        return float(ours == theirs)
    places: dict[str, list[int]] = {}
    for j, word in enumerate(theirs):
        places.setdefault(word, []).append(j)
    best, before = 0, dict[int, int]()
    for word in ours:
        row = {j: before.get(j - 1, 0) + 1 for j in places.get(word, ())}
        best, before = max(best, *row.values()) if row else best, row
    return best / min(len(ours), len(theirs))


def _ratio(one: int, other: int) -> float:
    return min(one, other) / max(one, other) if one or other else 1.0


def _opposite_pairs(cached: Text, asked: Text) -> int:
    """Words whose opposite stands on the other side, neither being on both sides."""
    ours, theirs = keys_of(cached), keys_of(asked)
    left, right = ours - theirs, theirs - ours
    return min(
        sum(not table[word].isdisjoint(others) for word in words if word in table)
        for words, others, table in (
            (left, right, cached.lexicon.opposites),
            (right, left, asked.lexicon.opposites),
        )
    )


@lru_cache(maxsize=256)
def _tenses(text: Text) -> tuple[bool, bool]:
    words, lex = {t.text for t in text.tokens}, text.lexicon
    return not words.isdisjoint(lex.past), not words.isdisjoint(lex.future)


def _function_difference(cached: Text, asked: Text) -> int:
    ours, theirs = _grammar(cached), _grammar(asked)
    return sum(abs(ours.get(word, 0) - theirs.get(word, 0)) for word in ours.keys() | theirs.keys())


@lru_cache(maxsize=256)
def _grammar(text: Text) -> dict[str, int]:
    return dict(Counter(t.text for t in text.tokens if t.role is Role.FUNCTION))
