"""LangChain's cache interface over a stack: its own suites, and what a semantic cache must not do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.caches import BaseCache
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_tests.integration_tests import AsyncCacheTestSuite, SyncCacheTestSuite

from cachestack.aio import AsyncCacheStack
from cachestack.integrations.langchain import CacheStackCache

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"


class TestSyncSuite(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self, stack: CacheStack) -> BaseCache:
        return CacheStackCache(stack, tenant="acme")


class TestAsyncSuite(AsyncCacheTestSuite):
    @pytest.fixture
    async def cache(self, stack: CacheStack) -> BaseCache:
        return CacheStackCache(AsyncCacheStack(stack), tenant="acme")


def chat(text: str, *before: Any) -> str:
    return dumps([*before, HumanMessage(text)])


def answer(text: str = "Press Reset.", **more: Any) -> list[Any]:
    message = AIMessage(
        text,
        response_metadata={"finish_reason": "stop", "model_name": "m-2026"},
        usage_metadata={"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
        **more,
    )
    return [ChatGeneration(message=message, generation_info={"finish_reason": "stop"})]


def test_a_chat_answer_comes_back_as_it_was_by_meaning_too(stack: CacheStack) -> None:
    cache = CacheStackCache(stack, tenant="acme")
    assert cache.lookup(chat(QUESTION), "llm") is None
    cache.update(chat(QUESTION), "llm", answer())
    assert cache.lookup(chat(QUESTION), "llm") == answer()
    assert cache.lookup(chat(REWORDED), "llm") == answer()
    counted = stack.stats().by_tenant["acme"]
    assert (counted.requests, counted.failed) == (3, 0)


@pytest.mark.parametrize(
    ("prompt", "llm"),
    [
        (chat(QUESTION), "other llm"),
        (chat("How do I delete my password?"), "llm"),
        (chat(QUESTION, SystemMessage("Be kind.")), "llm"),
        (chat(QUESTION, HumanMessage("Hi"), AIMessage("Hi.")), "llm"),
        (dumps([HumanMessage(QUESTION, name="bob")]), "llm"),
        (dumps([HumanMessage(QUESTION), AIMessage("Well,")]), "llm"),
        (dumps([HumanMessage([{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": "x"}])]), "llm"),
        (QUESTION, "llm"),
    ],
)
def test_what_differs_in_anything_else_is_another_prompt(stack: CacheStack, prompt: str, llm: str) -> None:
    cache = CacheStackCache(stack, tenant="acme")
    cache.update(chat(QUESTION), "llm", answer())
    assert cache.lookup(prompt, llm) is None
    cache.update(prompt, llm, answer("Other."))
    assert cache.lookup(prompt, llm) == answer("Other.")
    assert cache.lookup(chat(QUESTION), "llm") == answer()


def test_plain_prompts_are_matched_exactly_only(stack: CacheStack) -> None:
    cache = CacheStackCache(stack, tenant="acme")
    cache.update(QUESTION, "llm", [Generation(text="Press Reset.")])
    for other in (REWORDED, QUESTION + " ", "not json {", "[1, 2]", "[" * 100_000):
        assert cache.lookup(other, "llm") is None
    assert cache.lookup(QUESTION, "llm") == [Generation(text="Press Reset.")]


@pytest.mark.parametrize(
    "generations",
    [
        answer("", tool_calls=[{"name": "weather", "args": {}, "id": "1"}]),
        answer("Let me see.", tool_calls=[{"name": "weather", "args": {}, "id": "1"}]),
        answer("", additional_kwargs={"refusal": "No."}),
        answer(""),
        [ChatGeneration(message=AIMessage([{"type": "text", "text": "a"}, {"type": "image", "url": "x"}]))],
        [ChatGeneration(message=AIMessage("No.", response_metadata={"finish_reason": "content_filter"}))],
        [],
    ],
)
def test_what_is_more_or_less_than_text_is_not_kept(stack: CacheStack, generations: list[Any]) -> None:
    cache = CacheStackCache(stack, tenant="acme")
    cache.update(chat(QUESTION), "llm", generations)
    assert cache.lookup(chat(QUESTION), "llm") is None
    assert stack.performer.store.size().num_entries == 0


def test_a_cut_answer_is_replayed_for_the_same_prompt_only(stack: CacheStack) -> None:
    cache = CacheStackCache(stack, tenant="acme")
    cut = [ChatGeneration(message=AIMessage("Press", response_metadata={"finish_reason": "length"}))]
    cache.update(chat(QUESTION), "llm", cut)
    assert cache.lookup(chat(QUESTION), "llm") == cut
    assert cache.lookup(chat(REWORDED), "llm") is None


def test_tenants_and_walls(make_stack: Any) -> None:
    stack = make_stack("default: {semantic: {walls: [user]}}")
    caches = {
        (tenant, user): CacheStackCache(stack, tenant=tenant, user=user)
        for tenant in ("acme", "other")
        for user in ("ann", "bob", None)
    }
    caches["acme", "ann"].update(chat(QUESTION), "llm", answer())
    found = {whose for whose, cache in caches.items() if cache.lookup(chat(QUESTION), "llm")}
    assert found == {("acme", "ann")}
    caches["other", "ann"].clear()
    assert caches["acme", "ann"].lookup(chat(QUESTION), "llm") == answer()
    caches["acme", "ann"].clear()
    assert caches["acme", "ann"].lookup(chat(QUESTION), "llm") is None


@pytest.mark.parametrize(
    "llm", ['{"kwargs": {"temperature": 0.9}}---[(\'stop\', None)]', "[('model', 'm'), ('temperature', 0.9)]"]
)
def test_the_policys_temperature_holds(stack: CacheStack, llm: str) -> None:
    cache = CacheStackCache(stack, tenant="acme")
    cache.update(chat(QUESTION), llm, answer())
    assert cache.lookup(chat(QUESTION), llm) is None
    cold = llm.replace("0.9", "0.0")
    cache.update(chat(QUESTION), cold, answer())
    assert cache.lookup(chat(QUESTION), cold) == answer()


def test_a_chat_model_with_it(stack: CacheStack) -> None:
    messages = iter([AIMessage("one"), AIMessage("two")])
    model = GenericFakeChatModel(messages=messages, cache=CacheStackCache(stack, tenant="acme"))
    assert [model.invoke(text).content for text in (QUESTION, REWORDED, "Why is the sky blue?")] == [
        "one",
        "one",
        "two",
    ]


async def test_an_async_chat_model_with_it(stack: CacheStack) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("one")]), cache=CacheStackCache(stack, tenant="acme"))
    assert [(await model.ainvoke(text)).content for text in (QUESTION, REWORDED)] == ["one", "one"]


@pytest.mark.parametrize("allowed", [False, True])
def test_with_tools_it_is_as_the_policy_says(make_stack: Any, allowed: bool) -> None:
    cache = CacheStackCache(
        make_stack(f"default: {{semantic: {{allow_tools: {str(allowed).lower()}}}}}"), tenant="acme"
    )
    model = GenericFakeChatModel(messages=iter([]))
    llm = model._get_llm_string(tools=[{"type": "function", "function": {"name": "weather"}}])
    cache.update(chat(QUESTION), llm, answer())
    assert (cache.lookup(chat(QUESTION), llm) is not None) is allowed
    for plain in (model._get_llm_string(), model._get_llm_string(tools=[])):
        cache.update(chat(QUESTION), plain, answer())
        assert cache.lookup(chat(QUESTION), plain) == answer()
