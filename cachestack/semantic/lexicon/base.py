"""What a language's word lists mean, and how they are read.

The lists are text files beside this one, so that people who speak a language can review them. They are read once, at
first use. `#` starts a comment line. Words are folded as `words.fold` does. Sections:

- `function`: grammar only, not compared. `light`: one side may have it alone. `weak`: verbs and adjectives of little
  meaning. `scope`: sets scope, order or condition. All other words are content.
- `synonyms`: each line a group of words that may stand for each other. `opposites`: `left | right` exclude each other.
  `opposites_english.txt` and `opposites_french.txt` hold most of them; `siblings.txt` holds sets for all languages
  whose members exclude each other (weekdays, countries, colours).
- `phrases`: `these words > those words`, on whole tokens. `frames`: the same as regular expressions on folded text, for
  greetings, politeness and the many ways to open one question. `spellings`: hasty spellings, word for word.
  `rewrites`: contractions, as regular expressions.
- `months`, `weekdays`: in order, one a line, with short forms. `question_words`, `openers`, `modals`, `persons`,
  `owners`, `subjects`, `quantifiers`, `markers`, `period_shifts`, `relative_days`: the first word of a line names
  what all of its words mean.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

GUARDED_LANGUAGES = frozenset({"en", "fr"})
"""Languages that have word lists, and so guards."""

Phrases = Mapping[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]]
Rules = tuple[tuple[re.Pattern[str], str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lexicon:
    """One language's lists, ready to use."""

    language: str
    function: frozenset[str]
    light: frozenset[str]
    weak: frozenset[str]
    scope: frozenset[str]
    limits: frozenset[str]
    """Words that leave something out: `only`, `without`."""
    quantifiers: Mapping[str, str]
    negators: frozenset[str]
    synonyms: Mapping[str, tuple[str, ...]]
    opposites: Mapping[str, frozenset[str]]
    siblings: Mapping[str, frozenset[tuple[str, int]]]
    """Each word to the sets it is in, and which member of the set it names."""
    phrases: Phrases
    frames: Rules
    spellings: Mapping[str, str]
    rewrites: Rules
    months: Mapping[str, int]
    weekdays: Mapping[str, int]
    ambiguous_dates: frozenset[str]
    date_cues: frozenset[str]
    as_of: frozenset[str]
    relative_days: Mapping[str, str]
    now: frozenset[str]
    periods: frozenset[str]
    period_shifts: Mapping[str, str]
    number_words: Mapping[str, int]
    multipliers: Mapping[str, int]
    ordinals: Mapping[str, int]
    weak_numbers: frozenset[str]
    past: frozenset[str]
    future: frozenset[str]
    present: frozenset[str]
    markers: Mapping[str, str]
    conjunctions: frozenset[str]
    question_words: Mapping[str, str]
    degree_words: frozenset[str]
    quantity_words: frozenset[str]
    openers: Mapping[str, str]
    persons: Mapping[str, str]
    third: frozenset[str]
    owners: Mapping[str, str]
    subjects: Mapping[str, str]
    modals: Mapping[str, str]
    demonstratives: frozenset[str]
    prefixes: tuple[str, ...]
    articles: frozenset[str]
    passive: frozenset[str]
    passive_only: frozenset[str]
    participles: tuple[str, ...]


def lexicon(language: str | None) -> Lexicon:
    """The lists of a language; the English ones for a language that has none: its words are then only compared."""
    return _load("french" if language == "fr" else "english")


@cache
def _load(name: str) -> Lexicon:
    source = _sections(_read(f"{name}.txt"))
    words = {key: _words(lines) for key, lines in source.items()}
    numbers = _pairs(source["number_words"])
    return Lexicon(
        language="fr" if name == "french" else "en",
        function=words["function"],
        light=words["light"],
        weak=words["weak"],
        scope=words["scope"],
        limits=words["limits"],
        quantifiers=_named(source["quantifiers"]),
        negators=words["negators"],
        synonyms=_groups(source["synonyms"]),
        opposites=_opposites([*source["opposites"], *_lines(f"opposites_{name}.txt")]),
        siblings=_siblings(_sections(_read("siblings.txt"))),
        phrases=_phrases(source["phrases"]),
        frames=_patterns(source["frames"]),
        spellings=_pairs(source["spellings"]),
        rewrites=_patterns(source["rewrites"]),
        months=_numbered(source["months"]),
        weekdays=_numbered(source["weekdays"]),
        ambiguous_dates=words["ambiguous_dates"],
        date_cues=words["date_cues"],
        as_of=words["as_of"],
        relative_days=_named(source["relative_days"]),
        now=words["now"],
        periods=words["periods"],
        period_shifts=_named(source["period_shifts"]),
        number_words={word: int(value) for word, value in numbers.items() if value[0] != "*"},
        multipliers={word: int(value[1:]) for word, value in numbers.items() if value[0] == "*"},
        ordinals={word: int(value) for word, value in _pairs(source["ordinals"]).items()},
        weak_numbers=words["weak_numbers"],
        past=words["past"],
        future=words["future"],
        present=words["present"],
        markers=_named(source["markers"]),
        conjunctions=words["conjunctions"],
        question_words=_named(source["question_words"], also_unaccented=False),
        degree_words=words["degree_words"],
        quantity_words=words["quantity_words"],
        openers=_named(source["openers"]),
        persons=_named(source["persons"]),
        third=words["third"],
        owners=_named(source["owners"]),
        subjects=_named(source["subjects"]),
        modals=_named(source["modals"]),
        demonstratives=words["demonstratives"],
        prefixes=tuple(sorted(words["prefixes"], key=lambda p: (-len(p), p))),
        articles=words["articles"],
        passive=words["passive"],
        passive_only=words["passive_only"],
        participles=tuple(sorted(words["participles"])),
    )


def sections_of(name: str) -> dict[str, list[str]]:
    """The lines of each section of a word list."""
    return _sections(_read(name))


def bare(text: str) -> str:
    """Without accents."""
    return _bare(text)


def word_set(lines: list[str]) -> frozenset[str]:
    """All words of these lines, with and without accents."""
    return _words(lines)


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _lines(name: str) -> list[str]:
    return [line for line in _read(name).splitlines() if line.strip() and not line.startswith("#")]


def _sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("[") and line.endswith("]") and line[1:-1].replace("_", "").isalpha():
            lines = found.setdefault(line[1:-1], [])
        elif line.strip() and not line.startswith("#"):
            lines.append(line)
    return found


def _bare(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


def _words(lines: list[str]) -> frozenset[str]:
    """All words, with and without accents: hasty typing leaves them out."""
    words = {word for line in lines for word in line.split()}
    return frozenset(words | {_bare(word) for word in words})


def _pairs(lines: list[str]) -> dict[str, str]:
    pairs = dict(line.split(maxsplit=1) for line in lines)
    return {_bare(word): value for word, value in pairs.items()} | pairs


def _named(lines: list[str], also_unaccented: bool = True) -> dict[str, str]:
    named = {word: line.split()[0] for line in lines for word in line.split()}
    return ({_bare(word): name for word, name in named.items()} if also_unaccented else {}) | named


def _numbered(lines: list[str]) -> dict[str, int]:
    return {form: n for n, line in enumerate(lines, 1) for word in line.split() for form in (word, _bare(word))}


def _groups(lines: list[str]) -> dict[str, tuple[str, ...]]:
    """Each word to the names of its groups; a word may be in several."""
    found: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        for form in {form for word in line.split() for form in (word, _bare(word))}:
            found.setdefault(form, []).append(f"={number}")
    return {word: tuple(names) for word, names in found.items()}


def _opposites(lines: list[str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in lines:
        left, right = ({form for w in side.split() for form in (w, _bare(w))} for side in line.split("|"))
        for these, those in ((left, right), (right, left)):
            for word in these:
                found.setdefault(word, set()).update(those)
    return {word: frozenset(others) for word, others in found.items()}


def _siblings(sets: Mapping[str, list[str]]) -> dict[str, frozenset[tuple[str, int]]]:
    found: dict[str, set[tuple[str, int]]] = {}
    for name, members in sets.items():
        for number, line in enumerate(members):
            for word in line.split():
                for form in (word, _bare(word)):
                    found.setdefault(form, set()).add((name, number))
    return {word: frozenset(places) for word, places in found.items()}


def _rules(lines: list[str]) -> list[tuple[str, str]]:
    """`left > right`; the right side may be empty. `>` inside the left side is kept, the last one counts."""
    rules = []
    for line in lines:
        left, found, right = line.rpartition(" >")
        if not found:
            raise ValueError(f"a rule of a word list has no ' >': {line!r}")
        rules.append((left, right.strip()))
    return rules


def _phrases(lines: list[str]) -> Phrases:
    found: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    for left, right in _rules(lines):
        for words in {tuple(left.split()), tuple(_bare(left).split())}:
            found.setdefault(words[0], []).append((words, tuple(right.split())))
    return {first: tuple(sorted(rules, key=lambda r: -len(r[0]))) for first, rules in found.items()}


def _patterns(lines: list[str]) -> Rules:
    return tuple((re.compile(left), f" {right} " if right else " ") for left, right in _rules(lines))
