"""Whatever the texts: either order gives the same, a text equals itself, nothing raises, white space does not count."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cachestack.answers import compare
from cachestack.corpus import load_answers

PAIRS = load_answers()
ODD = (
    "the a Yes No oui non not 14 30 days € $ 1,200 1.2k 9e99 03/04/2025 dix-huit if only Paris Lyon red blue before "
    "after **bold** `code` - 1. {\"a\": 1} ``` :) est n'est pas sorry I can't help ½ \u0301 \ud800 \x00 \u202e"
)
WORDS = st.sampled_from(ODD.split())
SENTENCES = st.lists(WORDS, max_size=14).map(" ".join)
TEXTS = st.one_of(st.text(max_size=60), SENTENCES, st.sampled_from([p.x for p in PAIRS[:300]]))
QUESTIONS = st.none() | TEXTS


@settings(max_examples=400, deadline=None)
@given(TEXTS, TEXTS, QUESTIONS)
@example("9e99", "8e99", None)
@example("[" * 5000, "[" * 4999, None)
@example('{"a": ' + "1" * 5000 + "}", '{"a": 2}', None)
def test_symmetric_and_never_raises(x: str, y: str, question: str | None) -> None:
    one, other = compare(x, y, question), compare(y, x, question)
    assert (one.same, one.by, one.score) == (other.same, other.by, other.score)
    assert 0 <= one.score <= 1
    assert not str(one.evidence.get("unknown", "")).endswith("Error")


@settings(max_examples=200, deadline=None)
@given(TEXTS, QUESTIONS)
def test_reflexive(x: str, question: str | None) -> None:
    assert compare(x, x, question).same is True
    assert compare(x, x + " ", question).same is not False


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PAIRS), st.sampled_from(["NFC", "NFD"]), st.sampled_from([" ", "  ", "\u00a0"]))
def test_unicode_forms_and_white_space_do_not_count(pair: object, form: str, space: str) -> None:
    x, y, question = pair.x, pair.y, pair.question
    other = unicodedata.normalize(form, x.replace("\n", "\r\n"))
    if "```" not in x:
        other = "\n".join(space.join(line.split(" ")) for line in other.split("\n"))
    assert compare(x, other, question).same is True
    assert compare(other, y, question).same is compare(x, y, question).same


@pytest.mark.parametrize(
    "unit",
    ["a ", ".", " ", "\n", "*", "`", "1", "1 000 ", "a, ", "[a](b)", "a and ", "a: ", "yes, ", "sorry ", "```\n",
     "- ", "[", '{"a":', "é", "e\u0301", "1. a\n", "9x10^9 ", "1 h 1", "|a", "_", "here is ", "quatre-vingt-", "-a ",
     "(", '"'],
)  # fmt: skip
def test_long_answers_take_bounded_time(unit: str) -> None:
    """256 KiB of anything; a pattern that looks back again and again would take hours."""
    text = unit * (256 * 1024 // len(unit))
    compare("warm", "up")
    began = time.process_time()
    compare(text, text[:-1] + "b", "What?")
    assert time.process_time() - began < 20
