"""A stack as LangChain's chat model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_tests.unit_tests import ChatModelUnitTests

from cachestack.aio import AsyncCacheStack
from cachestack.errors import RequestError
from cachestack.integrations.langchain import ChatCacheStack

if TYPE_CHECKING:
    from cachestack.stack import CacheStack
    from tests.integrations.conftest import Echo

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"


class TestStandard(ChatModelUnitTests):
    """LangChain's own unit tests; there are no tools and no structured output to test."""

    @pytest.fixture(autouse=True)
    def _with_stack(self, stack: CacheStack) -> None:
        type(self).stack = stack

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatCacheStack

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"stack": self.stack, "tenant": "acme", "model": "echo-1"}

    @property
    def has_tool_calling(self) -> bool:
        return False

    @property
    def has_structured_output(self) -> bool:
        return False


def test_answers_and_where_they_came_from(stack: CacheStack, echo: Echo) -> None:
    model = ChatCacheStack(stack=stack, tenant="acme")
    first, second = model.invoke(QUESTION), model.invoke(REWORDED)
    assert first.content == second.content == f"You said: {QUESTION}"
    assert [made.response_metadata["served_from"] for made in (first, second)] == ["engine", "semantic"]
    assert first.usage_metadata["input_tokens"] == second.usage_metadata["input_tokens"] == 7
    assert second.usage_metadata["input_token_details"] == {"cache_read": 7}
    assert len(echo.asked) == 1
    assert stack.report_wrong(second.response_metadata["hit_id"], tenant="acme")


def test_streams(stack: CacheStack, echo: Echo) -> None:
    model = ChatCacheStack(stack=stack, tenant="acme")
    for _ in range(2):
        chunks = list(model.stream(QUESTION))
        assert len(chunks) > 2
        whole = sum(chunks[1:], chunks[0])
        assert whole.content == f"You said: {QUESTION}"
        assert whole.usage_metadata["output_tokens"] == 8
        assert whole.response_metadata["finish_reason"] == "stop"
    assert len(echo.asked) == 1


async def test_it_can_be_awaited(stack: CacheStack, echo: Echo) -> None:
    model = ChatCacheStack(stack=AsyncCacheStack(stack), tenant="acme")
    assert (await model.ainvoke(QUESTION)).content == f"You said: {QUESTION}"
    assert "".join([chunk.text async for chunk in model.astream(REWORDED)]) == f"You said: {QUESTION}"
    assert len(echo.asked) == 1


def test_what_is_asked_with_reaches_the_engine_and_counts(stack: CacheStack, echo: Echo) -> None:
    model = ChatCacheStack(stack=stack, tenant="acme", temperature=0.1, max_tokens=9, cache_tags=["faq"])
    model.invoke([SystemMessage("Be kind."), HumanMessage("Hi"), AIMessage("Hi."), HumanMessage(QUESTION)], stop=["x"])
    model.invoke(QUESTION, temperature=0.2, top_k=4)
    first, second = echo.asked
    assert [(m.role, m.content) for m in first.messages] == [
        ("system", "Be kind."), ("user", "Hi"), ("assistant", "Hi."), ("user", QUESTION),
    ]  # fmt: skip
    assert (first.sampling.temperature, first.sampling.max_new_tokens, first.sampling.stop) == (0.1, 9, ("x",))
    assert (second.sampling.temperature, dict(second.extra)) == (0.2, {"top_k": 4})
    for how in ({}, {"top_k": 5}, {"temperature": 0}):
        model.invoke(QUESTION, **how)
    assert len(echo.asked) == 5
    assert stack.invalidate(tenant="acme", tag="faq") == 5


def test_two_tenants_never_share(stack: CacheStack, echo: Echo) -> None:
    for tenant in ("acme", "other"):
        ChatCacheStack(stack=stack, tenant=tenant).invoke(QUESTION)
    assert len(echo.asked) == 2


@pytest.mark.parametrize(
    "message",
    [
        ToolMessage("4", tool_call_id="1"),
        AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}]),
        HumanMessage([{"type": "image_url", "image_url": {"url": "data:,x"}}]),
    ],
)
def test_what_it_does_not_take_is_refused(stack: CacheStack, message: Any) -> None:
    with pytest.raises(RequestError, match="ChatCacheStack takes"):
        ChatCacheStack(stack=stack, tenant="acme").invoke([message])
