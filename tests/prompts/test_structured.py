"""Structured prompts: stable parts first, versions known, accepted wherever a prompt is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.asking import build_request
from cachestack.errors import RequestError
from cachestack.prompts import Examples, Part, StructuredPrompt
from cachestack.requests import Message

FULL = StructuredPrompt(
    system_instructions=Part("You answer for ACME.", "instructions-2"),
    cached_context=[Part("Ouvert de 9 h à 17 h.", "handbook-3"), "Closed on Sunday."],
    examples=Examples((("Hi", "Hello"), ("Salut", "Bonjour")), "shots-1"),
    user_query="When are you open?",
)
texts = st.text(min_size=1).filter(str.strip)
parts = st.builds(Part, texts, st.none() | st.text(min_size=1))
prompts = st.builds(
    StructuredPrompt,
    system_instructions=st.none() | texts | parts,
    cached_context=st.lists(texts | parts, max_size=3),
    examples=st.builds(Examples, st.lists(st.tuples(texts, texts), max_size=2), st.none() | st.text(min_size=1)),
    user_query=texts | parts,
)


def test_stable_parts_come_first_and_are_marked() -> None:
    request = build_request(FULL, tenant="acme")
    assert request.messages == (
        Message("system", "You answer for ACME.\n\nOuvert de 9 h à 17 h.\n\nClosed on Sunday."),
        Message("user", "Hi"),
        Message("assistant", "Hello"),
        Message("user", "Salut"),
        Message("assistant", "Bonjour"),
        Message("user", "When are you open?"),
    )
    assert request.stable_messages == 5
    assert request.part_versions == ("instructions-2", "handbook-3", None, "shots-1", None)


def test_text_and_parts_without_versions_are_the_same_prompt_as_its_messages() -> None:
    prompt = StructuredPrompt("Be brief.", "Closed on Sunday.", [("Hi", "Hello")], "When?")
    assert prompt == StructuredPrompt(
        Part("Be brief."), [Part("Closed on Sunday.")], Examples((("Hi", "Hello"),)), Part("When?")
    )
    assert build_request(prompt) == build_request(prompt.messages, stable_messages=3)


def test_without_stable_parts_nothing_is_marked() -> None:
    request = build_request(StructuredPrompt(user_query="When?"))
    assert (request.messages, request.stable_messages) == ((Message("user", "When?"),), 0)


def test_with_query_changes_only_the_query() -> None:
    other = FULL.with_query("Où êtes-vous ?")
    assert other.stable == FULL.stable
    assert other.messages[-1] == Message("user", "Où êtes-vous ?")
    with pytest.raises(RequestError, match="with_query"):
        _ = StructuredPrompt("Be brief.").messages


def test_null_and_none_say_that_a_part_is_not_there() -> None:
    bare = StructuredPrompt(user_query="When?")
    assert StructuredPrompt(None, None, None, "When?") == bare  # type: ignore[arg-type]
    nulls = dict.fromkeys(("system_instructions", "cached_context", "examples"))
    assert StructuredPrompt.from_json(json.dumps(nulls | {"user_query": "When?"})) == bare


@given(prompts)
def test_json_comes_back_as_it_was(prompt: StructuredPrompt) -> None:
    assert StructuredPrompt.from_json(prompt.to_json()) == prompt
    text = json.dumps(prompt.to_json())
    assert StructuredPrompt.from_json(text) == prompt


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ('{"system": "x"}', "'system' is not known; allowed: system_instructions, cached_context, examples"),
        ('{"user_query": {"text": "x", "versoin": "1"}}', "user_query must be text, or {text, version}"),
        ('{"user_query": 4}', "user_query must be text"),
        ('{"examples": [{"user": "x"}]}', "examples must be a list of {user, assistant}"),
        ('{"cached_context": [""]}', "not empty"),
        ("[1]", "not a JSON object with the keys system_instructions"),
        ("{", "not a JSON object"),
    ],
)
def test_json_errors_say_what_is_allowed(document: str, says: str) -> None:
    with pytest.raises(RequestError) as caught:
        StructuredPrompt.from_json(document)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Part(" "),
        lambda: Part("x", ""),
        lambda: Part("x", 3),
        lambda: StructuredPrompt(system_instructions=3),
        lambda: StructuredPrompt(cached_context=[None]),  # type: ignore[list-item]
        lambda: StructuredPrompt(examples=["ab"]),  # type: ignore[list-item]
        lambda: StructuredPrompt(examples=[("a", "")]),
        lambda: StructuredPrompt(examples="ab"),
        lambda: build_request(FULL, system="Another"),
        lambda: build_request(FULL, stable_messages=1),
    ],
)
def test_what_is_not_a_prompt_is_refused(make) -> None:
    with pytest.raises(RequestError):
        make()
