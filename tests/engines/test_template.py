"""From messages to text: the template as it is, merged, plain; one BOS; a date that stands still."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.template import ChatTemplate, merge_system
from cachestack.errors import RequestError
from cachestack.requests import Message, Request, as_messages

MakeTokenizer = Callable[..., Any]
REFUSES_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] | trim) + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}"
)
DROPS_SYSTEM = "{% for m in messages if m['role'] != 'system' %}{{ '[' + m['role'] + ']' + m['content'] }}{% endfor %}"


def request(prompt: Any, system: str | None = None, **options: Any) -> Request:
    return Request(as_messages(prompt, system), **options)


def test_the_embedded_model_s_template(local_engine: TransformersEngine) -> None:
    template = ChatTemplate(local_engine.loaded.tokenizer)
    rendered = template.render(request("Hi", system="Be brief."))
    assert rendered.mode == "native"
    assert not rendered.add_special_tokens
    assert rendered.text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_developer_s_message_is_a_system_message(local_engine: TransformersEngine) -> None:
    template = ChatTemplate(local_engine.loaded.tokenizer)
    one = template.render(Request((Message("developer", "Be brief."), Message("user", "Hi"))))
    assert one == template.render(request("Hi", system="Be brief."))


@pytest.mark.parametrize("source", [REFUSES_SYSTEM, DROPS_SYSTEM])
def test_a_template_without_a_system_role_gets_its_text_in_the_user_s_message(
    make_byte_tokenizer: MakeTokenizer, source: str
) -> None:
    rendered = ChatTemplate(make_byte_tokenizer(template=source)).render(request("Hi", system="Be brief."))
    assert rendered.mode == "merged"
    assert "user" in rendered.text
    assert "Be brief.\n\nHi" in rendered.text


def test_system_text_goes_to_the_next_user_message() -> None:
    messages = (
        Message("system", "A"),
        Message("system", "B"),
        Message("user", "one"),
        Message("assistant", "two"),
        Message("system", "C"),
        Message("user", "three"),
        Message("system", "D"),
    )
    assert [(m.role, m.content) for m in merge_system(messages)] == [
        ("user", "A\n\nB\n\none"),
        ("assistant", "two"),
        ("user", "C\n\nthree"),
        ("user", "D"),
    ]


def test_a_model_without_a_template_gets_plain_turns(make_byte_tokenizer: MakeTokenizer) -> None:
    template = ChatTemplate(make_byte_tokenizer())
    rendered = template.render(request([{"role": "user", "content": "Hi"}], system="Be brief."))
    assert rendered.text == "System: Be brief.\n\nUser: Hi\n\nAssistant:"
    assert rendered.mode == "plain"
    assert rendered.add_special_tokens
    assert rendered.stops == ("\nUser:",)


def test_messages_that_a_template_refuses_are_a_request_error(make_byte_tokenizer: MakeTokenizer) -> None:
    source = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(RequestError, match="template refuses these messages: roles must alternate"):
        ChatTemplate(make_byte_tokenizer(template=source)).render(request("Hi", system="S"))


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'Today: ' + strftime_now('%Y-%m-%d') }}",
        "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
        + "{{ date_string }}",
    ],
)
def test_a_date_in_the_template_stands_still(make_byte_tokenizer: MakeTokenizer, source: str) -> None:
    tokenizer = make_byte_tokenizer(template=source + "{{ messages[0]['content'] }}")
    today = f"{datetime.date.today():%Y-%m-%d}"
    texts = {ChatTemplate(tokenizer).render(request("Hi")).text for _ in range(2)}
    assert texts <= {"Today: 2024-07-26Hi", "26 Jul 2024Hi"}
    assert today not in texts.pop()
    other = ChatTemplate(tokenizer, datetime.date(2030, 1, 2)).render(request("Hi")).text
    assert other in ("Today: 2030-01-02Hi", "02 Jan 2030Hi")


def test_template_arguments_come_from_the_request(make_byte_tokenizer: MakeTokenizer) -> None:
    template = ChatTemplate(make_byte_tokenizer(template="{{ 'think' if enable_thinking else 'act' }}"))
    extra = {"chat_template_kwargs": {"enable_thinking": True}}
    assert template.render(request("Hi", extra=extra)).text == "think"
    assert template.render(request("Hi")).text == "act"
    with pytest.raises(RequestError, match="must be a mapping"):
        template.render(request("Hi", extra={"chat_template_kwargs": "thinking"}))


def test_bos_is_there_once(make_byte_tokenizer: MakeTokenizer, make_engine: Callable[..., TransformersEngine]) -> None:
    """Whether the template writes it, the tokenizer adds it, or both would."""
    source = "{{ bos_token }}{{ messages[0]['content'] }}"
    both = make_engine(tokenizer=make_byte_tokenizer(template=source, adds_bos=True))
    tokenizer_only = make_engine(tokenizer=make_byte_tokenizer(adds_bos=True))
    for engine in (both, tokenizer_only):
        ids = engine.prepare(request("Hi")).ids
        assert ids[0] == 0
        assert ids.count(0) == 1
    neither = make_engine(tokenizer=make_byte_tokenizer(template="{{ messages[0]['content'] }}", adds_bos=True))
    assert 0 not in neither.prepare(request("Hi")).ids
