"""Boundaries: from the messages, checked in token space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.decisions import Reason
from cachestack.engines.base import Boundary, Prompt
from cachestack.engines.transformers.boundary import Cut, cuts_of, encode
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.template import ChatTemplate
from cachestack.errors import ContextTooLong, RequestError
from cachestack.requests import Message, Request, Sampling, as_messages

S, U, A = "system", "user", "assistant"
WRITING = ["é", "Où ça ?", "日本語", "中文。", "😀", "👍🏽", "\U0001f469\u200d\U0001f469\u200d\U0001f467"]
SPACING = ["\n", "\n\n", " ", "  ", "\t", "def f(x):\n    return", "a", " the", "'s", "12"]
texts = st.lists(st.sampled_from(WRITING + SPACING) | st.text(max_size=3), min_size=1, max_size=8).map("".join)
questions = texts.filter(lambda text: text.strip() != "")


def conversation(*turns: tuple[str, str], **options: Any) -> Request:
    return Request(tuple(Message(role, content) for role, content in turns), **options)


@pytest.mark.parametrize(
    ("roles", "stable", "expected"),
    [
        ((U,), None, ()),
        ((S, U), None, (Cut(1, "system"),)),
        ((S, S, U), None, (Cut(2, "system"),)),
        ((S,), None, (Cut(1, "system"),)),
        ((U, A, U), None, (Cut(2, "history"),)),
        ((S, U, A, U), None, (Cut(1, "system"), Cut(3, "history"))),
        ((S, U, A, U, A), None, (Cut(1, "system"), Cut(3, "history"))),
        ((S, U, A, U), 3, (Cut(3, "examples"),)),
        ((S, U, A, U, A, U), 3, (Cut(3, "examples"), Cut(5, "history"))),
        ((S, U), 1, (Cut(1, "mark"),)),
        ((S, U), 2, (Cut(2, "examples"),)),
        ((S, U, A, U), 0, ()),
    ],
)
def test_the_structure_of_the_messages_suggests_boundaries(
    roles: tuple[str, ...], stable: int | None, expected: tuple[Cut, ...]
) -> None:
    messages = tuple(Message(role, f"text {i}") for i, role in enumerate(roles))
    assert cuts_of(Request(messages, stable_messages=stable)) == expected


def test_a_boundary_is_where_the_stable_messages_end(local_engine: TransformersEngine) -> None:
    tokenizer = local_engine.loaded.tokenizer
    prompt = local_engine.prepare(conversation((S, "Be brief."), (U, "Hi"), (A, "Hello!"), (U, "Bye")))
    assert prompt.refusal is None
    assert prompt.nearest_clean is None
    assert [b.kind for b in prompt.boundaries] == ["system", "history"]
    before = [tokenizer.decode(prompt.ids[: b.position]) for b in prompt.boundaries]
    assert before[0] == "<|im_start|>system\nBe brief.<|im_end|>\n"
    assert before[1] == before[0] + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n"


def test_a_prompt_of_one_user_message_has_no_boundary(local_engine: TransformersEngine) -> None:
    prompt = local_engine.prepare(conversation((U, "Hi")))
    assert prompt.boundaries == ()
    assert prompt.refusal is Reason.NO_BOUNDARY


@settings(max_examples=120, deadline=None)
@given(system=texts, first=questions, answer=texts, question=questions)
def test_whatever_the_messages_say_boundaries_are_token_clean(
    local_engine: TransformersEngine, system: str, first: str, answer: str, question: str
) -> None:
    request = conversation((S, system), (U, first), (A, answer), (U, question))
    prompt = local_engine.prepare(request)
    other = local_engine.prepare(conversation((S, system), (U, first), (A, answer), (U, "Something else 😀")))
    assert prompt.refusal is None
    assert [b.kind for b in prompt.boundaries] == ["system", "history"]
    for ours, theirs in zip(prompt.boundaries, other.boundaries, strict=True):
        assert ours == theirs
        assert prompt.ids[: ours.position] == other.ids[: ours.position]
    tokenizer = local_engine.loaded.tokenizer
    template = ChatTemplate(tokenizer)
    whole = template.render(request).text
    for boundary, num_messages in zip(prompt.boundaries, (1, 3), strict=True):
        head = template.text(request, request.messages[:num_messages], "native", generation_prompt=False)
        apart = [encode(tokenizer, text, add_special_tokens=False) for text in (head, whole[len(head) :])]
        assert (*apart[0], *apart[1]) == prompt.ids
        assert len(apart[0]) == boundary.position


@pytest.fixture(scope="module", params=["byte", "metaspace", "wordpiece"])
def plain_engine(
    request: pytest.FixtureRequest,
    make_engine: Callable[..., TransformersEngine],
    make_byte_tokenizer: Callable[..., Any],
) -> TransformersEngine:
    """Without a chat template, so that nothing but text separates the messages."""
    kind = request.param
    tokenizer = make_byte_tokenizer() if kind == "byte" else request.getfixturevalue(f"{kind}_tokenizer")
    return make_engine(tokenizer=tokenizer, vocab_size=700, max_position_embeddings=4096)


@settings(max_examples=80, deadline=None)
@given(system=texts, question=questions, other=questions)
def test_plain_prompts_of_any_tokenizer_share_exactly_what_the_boundary_says(
    plain_engine: TransformersEngine, system: str, question: str, other: str
) -> None:
    one, two = (plain_engine.prepare(conversation((S, system), (U, text))) for text in (question, other))
    for prompt in (one, two):
        assert prompt.boundaries or prompt.refusal is Reason.UNCLEAN_BOUNDARY
        assert all(0 < b.position < len(prompt.ids) for b in prompt.boundaries)
    if one.boundaries and two.boundaries:
        assert one.boundaries == two.boundaries
        assert one.ids[: one.boundaries[0].position] == two.ids[: two.boundaries[0].position]


MERGES = (  # no system role, and nothing but a line end between the system text and the user's
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}<|im_start|>assistant\n"
)


def test_a_merged_system_text_ends_at_its_own_boundary(
    make_engine: Callable[..., TransformersEngine], make_byte_tokenizer: Callable[..., Any]
) -> None:
    tokenizer = make_byte_tokenizer(template=MERGES)
    engine = make_engine(tokenizer=tokenizer)
    prompt = engine.prepare(conversation((S, "You are a help desk."), (U, "How do I reset my password?")))
    assert prompt.refusal is None
    (boundary,) = prompt.boundaries
    assert boundary.kind == "system"
    # Byte-level BPE splits the two line ends differently when a word follows, so they are not part of it.
    assert tokenizer.decode(prompt.ids[: boundary.position]) == "<|im_start|>user\nYou are a help desk."


JOINS = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def test_an_unclean_boundary_is_refused_and_the_nearest_clean_one_is_named(
    make_engine: Callable[..., TransformersEngine], make_byte_tokenizer: Callable[..., Any]
) -> None:
    """A word that begins in the system text and ends in the question: " reset" is one token."""
    tokenizer = make_byte_tokenizer(template=JOINS)
    engine = make_engine(tokenizer=tokenizer)
    assert len(tokenizer(" reset")["input_ids"]) == 1
    system = "You are a help desk. How do I re"
    prompt = engine.prepare(conversation((S, system), (U, "set my password?")))
    assert prompt.boundaries == ()
    assert prompt.refusal is Reason.UNCLEAN_BOUNDARY
    nearest = prompt.nearest_clean
    assert nearest is not None
    assert nearest.kind == "system"
    assert tokenizer.decode(prompt.ids[: nearest.position]) == "You are a help desk. How do I"
    clean = engine.prepare(conversation((S, system), (U, " do it?")))
    assert clean.refusal is None
    assert clean.ids[: nearest.position] == prompt.ids[: nearest.position]


def test_an_unclean_boundary_with_nothing_clean_before_it(
    make_engine: Callable[..., TransformersEngine], make_byte_tokenizer: Callable[..., Any]
) -> None:
    tokenizer = make_byte_tokenizer(template=JOINS)
    prompt = make_engine(tokenizer=tokenizer).prepare(conversation((S, "h"), (U, "elp")))
    assert prompt.refusal is Reason.UNCLEAN_BOUNDARY
    assert prompt.boundaries == ()
    assert prompt.nearest_clean is None


def test_a_template_that_wants_a_user_s_message_still_has_a_system_boundary(
    make_engine: Callable[..., TransformersEngine], make_byte_tokenizer: Callable[..., Any]
) -> None:
    """It cannot be rendered up to the system message alone; the boundary is found by what later messages change."""
    source = (
        "{% if messages[-1]['role'] != 'user' %}{{ raise_exception('no user query') }}{% endif %}"
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    tokenizer = make_byte_tokenizer(template=source)
    engine = make_engine(tokenizer=tokenizer)
    for question in ("Hi", "\n\nHi", "  Hi"):
        prompt = engine.prepare(conversation((S, "You are a help desk."), (U, question)))
        assert prompt.refusal is None
        (boundary,) = prompt.boundaries
        before = tokenizer.decode(prompt.ids[: boundary.position])
        assert before == "<|im_start|>system\nYou are a help desk.<|im_end|>\n"


def test_a_template_that_puts_changing_text_first_has_no_usable_boundary(
    make_engine: Callable[..., TransformersEngine], make_byte_tokenizer: Callable[..., Any]
) -> None:
    source = "{{ messages[-1]['content'] + '|' }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    engine = make_engine(tokenizer=make_byte_tokenizer(template=source))
    prompt = engine.prepare(conversation((S, "You are a help desk."), (U, "How do I?")))
    assert prompt.boundaries == ()
    assert prompt.refusal is Reason.UNCLEAN_BOUNDARY


def test_where_all_is_stable_one_token_is_left_to_compute(
    make_engine: Callable[..., TransformersEngine], make_byte_tokenizer: Callable[..., Any]
) -> None:
    source = "{% for m in messages %}{{ m['content'] }}{% endfor %}"  # no generation prompt after the last message
    engine = make_engine(tokenizer=make_byte_tokenizer(template=source))
    prompt = engine.prepare(conversation((S, "You are"), (U, " a help desk."), stable_messages=2))
    assert prompt.refusal is None
    assert prompt.boundaries == (Boundary(len(prompt.ids) - 1, "examples"),)


def test_a_prompt_of_one_token(
    make_engine: Callable[..., TransformersEngine], make_byte_tokenizer: Callable[..., Any], drain: Callable[..., Any]
) -> None:
    engine = make_engine(tokenizer=make_byte_tokenizer(template="{{ messages[-1]['content'] }}"))
    request = Request(as_messages("a", system="a"), sampling=Sampling(max_new_tokens=3), stable_messages=1)
    prompt = engine.prepare(request)
    assert len(prompt.ids) in (1, 3)  # merged with the system text, or dropped with it
    one = Prompt(prompt.ids[:1])
    assert drain(engine, request, one).computed.generation.usage.prompt_tokens == 1


def test_a_prompt_beyond_the_context_names_both_numbers(make_engine: Callable[..., TransformersEngine]) -> None:
    engine = make_engine(max_position_embeddings=32)
    with pytest.raises(ContextTooLong, match=r"has \d{3} tokens, and the context of tiny-llama-\d+ holds 32"):
        engine.prepare(conversation((U, "word " * 60)))


def test_several_answers_are_refused(local_engine: TransformersEngine) -> None:
    with pytest.raises(RequestError, match="n=2"):
        local_engine.prepare(conversation((U, "Hi"), sampling=Sampling(n=2)))


@pytest.mark.parametrize(("role", "content"), [("system", "\udfff b"), ("user", "bad \ud800 x")])
def test_text_that_is_not_unicode_is_named(local_engine: TransformersEngine, role: str, content: str) -> None:
    messages = (Message(role, content), Message("user", "Hello"))
    with pytest.raises(RequestError, match="lone surrogate"):
        local_engine.prepare(Request(messages))
