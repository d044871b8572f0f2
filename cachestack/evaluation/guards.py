"""What each guard catches of the near misses, by kind, and how often it objects to rewordings that keep the answer.

`certain` and `doubt` are counted apart: only what is certain vetoes, a doubt is evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cachestack.evaluation.intervals import wilson
from cachestack.semantic.guards import GUARDS, judge
from cachestack.semantic.guards.features import guard_name
from cachestack.semantic.text import Text, analyse

ALL = "all guards"
REWORDINGS = "rewordings"


@dataclass(frozen=True, slots=True)
class GuardPair:
    """Two questions, whether one answer serves both, and by what they differ. `language`: ISO 639-1, or None."""

    a: str
    b: str
    same_answer: bool
    kind: str
    language: str | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Pairs by group, and of those what each guard rejected. A group is (language, kind)."""

    pairs: Mapping[tuple[str, str], int]
    certain: Mapping[tuple[str, str, str], int]
    """By guard, language and kind."""
    doubted: Mapping[tuple[str, str, str], int]
    """Rejected without certainty; under `ALL` a pair that one guard is certain of is not counted again."""


def corpus_pairs(rows: Iterable[Mapping[str, Any]]) -> Iterable[GuardPair]:
    """Rows as `cachestack.corpus.pairs_of` gives them. All rewordings are of one kind."""
    for row in rows:
        kind = REWORDINGS if row["same_answer"] else str(row["category"])
        yield GuardPair(row["a"], row["b"], row["same_answer"], kind, row.get("language"))


def count(pairs: Iterable[GuardPair]) -> Counts:
    """Ask all guards about all pairs. Texts are analysed once."""
    known: dict[tuple[str, str | None], Text] = {}
    seen: Counter[tuple[str, str]] = Counter()
    certain: Counter[tuple[str, str, str]] = Counter()
    doubted: Counter[tuple[str, str, str]] = Counter()
    for pair in pairs:
        group = (pair.language or "", pair.kind)
        seen[group] += 1
        verdicts = judge(_text(pair.a, pair, known), _text(pair.b, pair, known))
        for guard, verdict in zip(GUARDS, verdicts, strict=True):
            if not verdict.passed:
                (certain if verdict.certain else doubted)[(guard_name(guard), *group)] += 1
        if any(not v.passed and v.certain for v in verdicts):
            certain[(ALL, *group)] += 1
        elif any(not v.passed for v in verdicts):
            doubted[(ALL, *group)] += 1
    return Counts(seen, certain, doubted)


def summarise_guards(counts: Counts) -> dict[str, Any]:
    """By guard: false alarms on rewordings, by language too, and what it catches of each kind of near miss.

    JSON-able. Each share is `{n, certain, doubt, certain_rate, certain_low, certain_high, doubt_rate}`; the bounds are
    a 95% Wilson interval.
    """
    languages = sorted({language for language, _ in counts.pairs})
    kinds = sorted({kind for _, kind in counts.pairs if kind != REWORDINGS})
    result: dict[str, Any] = {}
    for name in (*map(guard_name, GUARDS), ALL):
        result[name] = {
            REWORDINGS: _share(counts, name, languages, (REWORDINGS,)),
            "rewordings_by_language": {lang: _share(counts, name, (lang,), (REWORDINGS,)) for lang in languages},
            "near_misses": _share(counts, name, languages, kinds),
            "near_misses_by_language": {lang: _share(counts, name, (lang,), kinds) for lang in languages},
            "by_kind": {kind: _share(counts, name, languages, (kind,)) for kind in kinds},
        }
    return result


def _share(counts: Counts, name: str, languages: Iterable[str], kinds: Iterable[str]) -> dict[str, Any]:
    groups = [(language, kind) for language in languages for kind in kinds]
    n = sum(counts.pairs.get(group, 0) for group in groups)
    certain = sum(counts.certain.get((name, *group), 0) for group in groups)
    doubt = sum(counts.doubted.get((name, *group), 0) for group in groups)
    low, high = wilson(certain, n)
    return {
        "n": n,
        "certain": certain,
        "doubt": doubt,
        "certain_rate": certain / n if n else 0.0,
        "certain_low": low,
        "certain_high": high,
        "doubt_rate": doubt / n if n else 0.0,
    }


def _text(text: str, pair: GuardPair, known: dict[tuple[str, str | None], Text]) -> Text:
    key = (text, pair.language)
    if key not in known:
        known[key] = analyse(*key)
    return known[key]
