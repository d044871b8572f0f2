"""LangChain: its cache interface over a stack, and (`ChatCacheStack`) a stack as its chat model."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cachestack.aio import AsyncCacheStack
from cachestack.errors import MissingExtra
from cachestack.integrations.aside import Aside
from cachestack.requests import FinishReason, Generation, Request, Usage

try:
    from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
    from langchain_core.load import dumps, loads
    from langchain_core.messages import AIMessage, AIMessageChunk
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, GenerationChunk
    from langchain_core.outputs import Generation as LangChainGeneration
except ImportError as error:
    raise MissingExtra("langchain-core", "langchain") from error

from cachestack.integrations.langchain_chat import ChatCacheStack

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

__all__ = ["CacheStackCache", "ChatCacheStack"]

_KEPT: list[type[Any]] = [
    LangChainGeneration,
    GenerationChunk,
    ChatGeneration,
    ChatGenerationChunk,
    AIMessage,
    AIMessageChunk,
]
_CUT = ("length", "max_tokens", "MAX_TOKENS")
_TOOLS = re.compile(r"\('(?:tools|functions)', (?!None|\[\]|\(\)|\{\})")
_FILTERED = ("content_filter", "refusal", "SAFETY")


class CacheStackCache(BaseCache):
    """LangChain's LLM cache, kept in a stack. Its generations come back as they were.

    A chat model's prompt that ends with one human message of text is matched exactly and by meaning, as the tenant's
    policy says; everything before that message, and the model with all its parameters, must be equal. Other prompts are
    matched exactly only. Tool calls and what is no text are not kept; what is asked with tools is looked up only where
    the policy says `allow_tools`. Works with a CacheStack or an AsyncCacheStack.
    """

    def __init__(
        self,
        stack: CacheStack | AsyncCacheStack,
        *,
        tenant: str,
        user: str | None = None,
        role: str | None = None,
        tags: Sequence[str] = (),
        ttl_s: float | None = None,
    ) -> None:
        self._aside = Aside(stack, "langchain", tenant=tenant, user=user, role=role, tags=tags, ttl_s=ttl_s)

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        return _loaded(self._aside.find(self._request(prompt, llm_string)))

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        return _loaded(await self._aside.afind(self._request(prompt, llm_string)))

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        made = _dumped(return_val)
        if made is not None:
            self._aside.keep(self._request(prompt, llm_string), made)

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        made = _dumped(return_val)
        if made is not None:
            await self._aside.akeep(self._request(prompt, llm_string), made)

    def clear(self, **kwargs: Any) -> None:
        """Remove what LangChain has kept for this tenant, the entries of all its users included."""
        self._aside.clear()

    async def aclear(self, **kwargs: Any) -> None:
        from cachestack.adriver import in_worker

        await in_worker(self._aside.clear)

    def _request(self, prompt: str, llm_string: str) -> Request:
        question, rest = _question(prompt)
        contract = {"model": llm_string, "prompt": rest}
        return self._aside.request(
            prompt if question is None else question,
            contract,
            by_meaning=question is not None,
            temperature=_temperature(llm_string),
            tools=_TOOLS.findall(llm_string),
        )


def _question(prompt: str) -> tuple[str | None, Any]:
    """The last message's text, where it is a human's, and all that is said besides; (None, None) for other prompts."""
    try:
        messages = json.loads(prompt)
    except (ValueError, RecursionError):
        return None, None
    match messages:
        case [*before, {"lc": 1, "id": [*_, "HumanMessage"], "kwargs": {"content": str(text), **more}}] if text.strip():
            return text, [before, more]
        case _:
            return None, None


def _temperature(llm_string: str) -> float | None:
    """What LangChain's description of a model says, so that the policy's limit holds."""
    described, _, parameters = llm_string.rpartition("---")
    found: list[Any] = []
    with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        found.append(dict(ast.literal_eval(parameters)).get("temperature"))
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        found.append(json.loads(described)["kwargs"]["temperature"])
    return next((float(t) for t in found if isinstance(t, int | float) and 0 <= t <= 5), None)


def _dumped(generations: RETURN_VAL_TYPE) -> Generation | None:
    """None for what is not to be kept."""
    finish: FinishReason = "stop"
    usage = Usage()
    for generation in generations:
        info: dict[str, Any] = dict(generation.generation_info or {})
        message = getattr(generation, "message", None)
        if message is not None:
            if not _is_text(message):
                return None
            info |= message.response_metadata
            said = getattr(message, "usage_metadata", None) or {}
            usage = Usage(
                usage.prompt_tokens + said.get("input_tokens", 0),
                0,
                usage.completion_tokens + said.get("output_tokens", 0),
            )
        reason = info.get("finish_reason") or info.get("stop_reason")
        if reason in _FILTERED or not generation.text.strip():
            return None
        finish = "length" if reason in _CUT else finish
    if not generations:
        return None
    return Generation(dumps(list(generations)), finish, usage)


def _is_text(message: Any) -> bool:
    has_calls = getattr(message, "tool_calls", None) or getattr(message, "invalid_tool_calls", None)
    says_more = any(value for value in message.additional_kwargs.values())
    return isinstance(message.content, str) and not has_calls and not says_more


def _loaded(text: str | None) -> list[LangChainGeneration] | None:
    if text is None:
        return None
    generations: list[LangChainGeneration] = loads(text, allowed_objects=_KEPT)
    return generations
