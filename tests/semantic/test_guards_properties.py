"""What holds for every guard and any text: equal texts pass, spelling changes nothing, neither text is special."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.corpus import load_questions
from cachestack.semantic.guards import FEATURE_NAMES, GUARDS, features, judge
from cachestack.semantic.text import analyse
from cachestack.semantic.words import fold

ENGLISH = """
how do i you we can what is are the a an my your his not never without enable disable on off before after from to than
and or in of for with by was will be being chased cat dog reset router password visa visas non-profit who where when why
which should more less all only first last 3 three 1,000 $40 40% 5kg march may 2019 2019-03-05 today tomorrow next week
7pm v2.1 c++ AI artificial intelligence get best good please thanks hello Leeds York this
"""
FRENCH = """
comment puis-je est-ce que quel quelle est le la les l'eau d'un mon votre ne pas plus sans activer désactiver avant
après de à vers que et ou dans pour avec carte compte réinitialiser mot passe qui où quand pourquoi combien tous
seulement premier dernier 3 trois 1 000,50 € 40 % mars mai 2019 aujourd'hui demain semaine prochaine 14h30 bonjour
merci colis été œuf refusée
"""


def sentences(words: str) -> st.SearchStrategy[str]:
    parts = st.lists(st.sampled_from([*words.split(), ",", "?", "."]), min_size=1, max_size=12)
    return parts.map(" ".join)


def languages() -> st.SearchStrategy[tuple[str, st.SearchStrategy[str]]]:
    return st.sampled_from([("en", sentences(ENGLISH)), ("fr", sentences(FRENCH))])


@st.composite
def texts(draw: st.DrawFn, number: int) -> tuple[str, list[str]]:
    language, strategy = draw(languages())
    return language, [draw(strategy) for _ in range(number)]


SPELLINGS = {
    "upper": str.upper,
    "title": str.title,
    "decomposed": lambda t: unicodedata.normalize("NFD", t),
    "composed": lambda t: unicodedata.normalize("NFC", t),
    "wide spaces": lambda t: "  " + t.replace(" ", " \t\u00a0\n ") + "\n",
    "typographic": lambda t: t.replace("'", "\u2019").replace("-", "\u2011"),
}


@given(texts(1))
@settings(max_examples=150, deadline=None)
def test_a_text_passes_against_itself(drawn: tuple[str, list[str]]) -> None:
    language, [text] = drawn
    assert [v for v in judge(analyse(text, language), analyse(text, language)) if not v.passed] == []


@given(st.text(max_size=80), st.sampled_from(["en", "fr", "de", None]))
@settings(max_examples=200, deadline=None)
def test_any_text_at_all_passes_against_itself(text: str, language: str | None) -> None:
    assert [v for v in judge(analyse(text, language), analyse(text, language)) if not v.passed] == []


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_pair_of_texts_makes_a_guard_fail(one: str, other: str) -> None:
    verdicts = judge(analyse(one, "en"), analyse(other, "en"))
    assert len(verdicts) == len(GUARDS)


@given(texts(2))
@settings(max_examples=300, deadline=None)
def test_neither_text_is_special(drawn: tuple[str, list[str]]) -> None:
    language, [one, other] = drawn
    a, b = analyse(one, language), analyse(other, language)
    there, back = judge(a, b), judge(b, a)
    assert [(v.kind, v.passed, v.certain) for v in there] == [(v.kind, v.passed, v.certain) for v in back]


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(drawn=texts(2))
@settings(max_examples=60, deadline=None)
def test_spelling_does_not_change_a_verdict(spelling: str, drawn: tuple[str, list[str]]) -> None:
    language, [one, other] = drawn
    written = SPELLINGS[spelling](one)
    plain, changed = analyse(one, language), analyse(written, language)
    assert [t.text for t in plain.tokens] == [t.text for t in changed.tokens]
    beside = analyse(other, language)
    assert [v.passed for v in judge(plain, beside)] == [v.passed for v in judge(changed, beside)]


@given(st.text(max_size=60))
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@pytest.mark.parametrize("word", ["x" * 1999, "supercalifragilistic" * 99, "unhappily" * 222])
def test_two_endless_words_are_not_compared_letter_by_letter(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take seconds, in the time of a request; no word that is known is as long."""

    def refuse(x: str, y: str, limit: int) -> int:
        raise AssertionError(f"{len(x)} letters against {len(y)}")

    monkeypatch.setattr("cachestack.semantic.align.distance", refuse)
    assert judge(analyse(word, "en"), analyse(word[:-1], "en"))


CORPUS = [
    (question.language, text)
    for question in load_questions("train")[::40]
    for text in (question.text, *question.rewordings, *(miss.text for miss in question.near_misses))
]


@given(st.sampled_from(CORPUS), st.sampled_from(sorted(SPELLINGS)))
@settings(max_examples=100, deadline=None)
def test_a_real_question_passes_against_another_writing_of_it(drawn: tuple[str, str], spelling: str) -> None:
    language, text = drawn
    if "`" in text or unicodedata.normalize("NFC", text) != text or fold(SPELLINGS[spelling](text)) != fold(text):
        return  # letter case counts in code
    one, other = analyse(text, language), analyse(SPELLINGS[spelling](text), language)
    assert [v for v in judge(one, other) if not v.passed] == []


@given(st.sampled_from(CORPUS), st.sampled_from(CORPUS))
@settings(max_examples=150, deadline=None)
def test_features_do_not_depend_on_which_text_came_first(one: tuple[str, str], other: tuple[str, str]) -> None:
    a, b = analyse(one[1], one[0]), analyse(other[1], other[0])
    there, back = features(a, b), features(b, a)
    assert tuple(there) == FEATURE_NAMES
    assert there == pytest.approx(back)
    assert all(math.isfinite(value) for value in there.values())


SIMILAR = frozenset(
    [
        *("word_overlap", "matter_overlap", "trigram_similarity", "longest_run_share", "length_ratio", "matter_ratio"),
        *("same_first_word", "same_last_word", "matched_share_min", "matched_share_max"),
        *("side_by_side", "first_difference", "faced_letters_low"),
    ]
)
COUNTED = ("num_", "matches_", "both_questions", "is_french")


@given(st.one_of(st.sampled_from(CORPUS), st.tuples(st.just("en"), st.text(max_size=60))))
@settings(max_examples=150, deadline=None)
def test_equal_texts_have_no_differences(drawn: tuple[str, str]) -> None:
    language, text = drawn
    found = features(analyse(text, language), analyse(text, language))
    for name, value in found.items():
        if name == "side_by_side" and not analyse(text, language).tokens:
            continue
        if not name.startswith(COUNTED):
            assert value == pytest.approx(1.0 if name in SIMILAR else 0.0), name


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(["en", "fr", None]))
@settings(max_examples=150, deadline=None)
def test_any_two_texts_have_features(one: str, other: str, language: str | None) -> None:
    found = features(analyse(one, language), analyse(other, language))
    assert all(math.isfinite(value) for value in found.values())


def test_the_names_of_the_features_are_fixed() -> None:
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)
    assert FEATURE_NAMES[0] == "languages_doubt"
    assert FEATURE_NAMES.index("is_french") == 86
    assert FEATURE_NAMES[-1] == "code_case_differs"


def feature(name: str, one: str, other: str) -> float:
    return features(analyse(one, "en"), analyse(other, "en"))[name]


def test_features_see_what_no_guard_tells_apart() -> None:
    assert feature("modal_words_differ", "Must I declare it?", "Should I declare it?") == 2
    assert feature("code_case_differs", "What does ls -A do?", "What does ls -a do?") == 1
    assert feature("code_case_differs", "What does getUser do?", "What does GETUSER do?") == 0
    assert feature("markers_differ", "How do I talk to Tom?", "How do I talk with Tom?") == 1
    assert feature("case_differs", "How do I remove polish?", "How do I remove Polish?") == 1
    assert feature("opposite_pairs", "Open the lid", "Close the lid") == 1
    assert feature("negation_parity_differs", "It starts", "It does not start") == 1
