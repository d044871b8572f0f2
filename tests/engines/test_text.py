"""Streaming text: whole characters only, and nothing of a stop string."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.text import Detokenizer, StopStrings

WRITING = [
    "é",
    "Où ça ?",
    " naïve",
    "日本語",
    "中文。",
    "😀",
    "👍🏽",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "€",
    "𝄞",
]
SPACING = ["\n\n", "  ", "\t", "def f(x):\n    ", "a", " the"]
texts = st.lists(st.sampled_from(WRITING + SPACING) | st.text(max_size=4), max_size=12).map("".join)


@pytest.fixture(scope="module")
def tokenizer(local_engine: TransformersEngine) -> Any:
    return local_engine.loaded.tokenizer


@settings(max_examples=150, deadline=None)
@given(text=texts)
@example(text="👩‍👩‍👧 is one character of seven bytes four times over")
def test_pieces_are_whole_characters_and_join_to_the_text(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assume("\ufffd" not in tokenizer.decode(ids))  # its vocabulary lacks a few bytes of the rarest scripts
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.add(token) for token in ids]
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join([*pieces, detokenizer.finish()]) == tokenizer.decode(ids, skip_special_tokens=True)


@settings(max_examples=100, deadline=None)
@given(text=texts, num_kept=st.integers(0, 40))
def test_an_answer_cut_off_inside_a_character_ends_before_it(tokenizer: Any, text: str, num_kept: int) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][:num_kept]
    detokenizer = Detokenizer(tokenizer)
    got = "".join([*(detokenizer.add(token) for token in ids), detokenizer.finish()])
    assert got == tokenizer.decode(ids).rstrip("\ufffd")


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 49151), max_size=20))
def test_any_tokens_stream_as_they_decode(tokenizer: Any, ids: list[int]) -> None:
    detokenizer = Detokenizer(tokenizer)
    got = "".join([*(detokenizer.add(token) for token in ids), detokenizer.finish()])
    assert got == tokenizer.decode(ids, skip_special_tokens=True).rstrip("\ufffd")


def test_spaces_between_words_survive_where_a_decoder_strips_the_first(metaspace_tokenizer: Any) -> None:
    text = "You are a help desk. Où est ma carte ? 日本"
    ids = metaspace_tokenizer(text, add_special_tokens=False)["input_ids"]
    detokenizer = Detokenizer(metaspace_tokenizer)
    pieces = [detokenizer.add(token) for token in ids]
    assert "".join([*pieces, detokenizer.finish()]) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_special_tokens_are_not_text(tokenizer: Any) -> None:
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer("<|im_start|>user\nhi<|im_end|>\n", add_special_tokens=False)["input_ids"]
    assert "".join(detokenizer.add(token) for token in ids) == "user\nhi\n"


alphabet = st.text("ab\n", max_size=12)


@settings(max_examples=300, deadline=None)
@given(
    chunks=st.lists(st.text("ab\n", max_size=5), max_size=8),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
)
def test_a_stop_string_ends_the_text_wherever_the_pieces_are_cut(chunks: list[str], stops: list[str]) -> None:
    whole = "".join(chunks)
    ends = sorted((whole.find(stop) + len(stop), whole.find(stop)) for stop in stops if stop in whole)
    stopper, sent = StopStrings(stops), ""
    for chunk in chunks:
        sent += stopper.add(chunk)
        assert not any(stop in sent for stop in stops)
    if ends:
        assert stopper.found
        assert sent == whole[: ends[0][1]]  # the first to be complete, the longer one of two
        assert stopper.finish() == ""
    else:
        assert not stopper.found
        assert sent + stopper.finish() == whole


@pytest.mark.parametrize("pieces", [["A cat and a dog"], ["A cat", " an", "d a dog"], list("A cat and a dog")])
def test_of_several_stop_strings_the_first_to_be_complete_counts_however_the_text_is_cut(pieces: list[str]) -> None:
    for stops, kept in (([" and a ", "an"], "A cat "), (["t an", " an"], "A ca"), (["A", "A cat"], "")):
        stopper = StopStrings(stops)
        assert "".join(stopper.add(piece) for piece in pieces) == kept


def test_the_beginning_of_a_stop_string_is_held_back_until_it_is_clear() -> None:
    stopper = StopStrings(["\nUser:"])
    assert stopper.add("Hello\nUs") == "Hello"
    assert stopper.add("ed") == "\nUsed"
    assert stopper.add("\nUser") == ""
    assert stopper.add(": hi") == ""
    assert stopper.found
    assert stopper.add("more") == ""


def test_without_stop_strings_nothing_is_held_back() -> None:
    stopper = StopStrings([])
    assert stopper.add("abc") == "abc"
    assert stopper.finish() == ""
