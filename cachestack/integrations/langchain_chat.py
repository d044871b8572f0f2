"""A stack as LangChain's chat model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cachestack.aio import AsyncCacheStack
from cachestack.asking import build_request
from cachestack.errors import MissingExtra, RequestError
from cachestack.requests import Chunk, Message, Request, Usage

try:
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ChatMessage
    from langchain_core.messages.ai import UsageMetadata
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from pydantic import Field
except ImportError as error:
    raise MissingExtra("langchain-core", "langchain") from error

if TYPE_CHECKING:
    from cachestack.decisions import Response
    from cachestack.stack import CacheStack

_ROLES = {"system": "system", "human": "user", "ai": "assistant"}


class ChatCacheStack(BaseChatModel):
    """A stack as LangChain's chat model: the cache answers what it can, the stack's engine the rest.

    `engine`: one by its name; without it the stack's first. Text in, text out: tools and images are for the models of
    LangChain's own packages, with CacheStackCache beside them. `response_metadata` says where an answer came from
    (`served_from`), its trace's id and the `hit_id` to report it by.
    """

    stack: Any = Field(exclude=True)
    """A CacheStack or an AsyncCacheStack."""
    tenant: str
    user: str | None = None
    role: str | None = None
    engine: str | None = None
    model: str = ""
    """The model's name in the contract; without it the engine's."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    version: str | None = None
    cache_tags: list[str] = Field(default_factory=list)
    ttl_s: float | None = None

    @property
    def _llm_type(self) -> str:
        return "cachestack"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        names = ("tenant", "engine", "model", "temperature", "top_p", "seed", "max_tokens", "version")
        return {name: getattr(self, name) for name in names}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(self._sync.chat(self._request(messages, stop, kwargs), engine=self.engine))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        stack = AsyncCacheStack(self._sync)
        return _result(await stack.chat(self._request(messages, stop, kwargs), engine=self.engine))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with self._sync.stream(self._request(messages, stop, kwargs), engine=self.engine) as stream:
            for chunk in stream:
                made = _chunk(chunk, stream.response)
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=made)
                yield made

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        stack = AsyncCacheStack(self._sync)
        async with stack.stream(self._request(messages, stop, kwargs), engine=self.engine) as stream:
            async for chunk in stream:
                made = _chunk(chunk, stream.response)
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=made)
                yield made

    @property
    def _sync(self) -> CacheStack:
        stack: CacheStack = self.stack.stack if isinstance(self.stack, AsyncCacheStack) else self.stack
        return stack

    def _request(self, messages: list[BaseMessage], stop: list[str] | None, given: Mapping[str, Any]) -> Request:
        """Raises RequestError. What the call gives goes before what the model was made with; a parameter that is not
        known counts in the contract."""
        options: dict[str, Any] = {
            "model": self.model,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "version": self.version,
            "ttl_s": self.ttl_s,
        }
        extra = {name: value for name, value in given.items() if name not in options}
        options |= {name: value for name, value in given.items() if name in options}
        return build_request(
            [_message(message) for message in messages],
            tenant=self.tenant,
            user=self.user,
            role=self.role,
            stop=self.stop or () if stop is None else stop,
            tags=self.cache_tags,
            extra=extra,
            max_new_tokens=options.pop("max_tokens"),
            **options,
        )


def _message(message: BaseMessage) -> Message:
    role = message.role if isinstance(message, ChatMessage) else _ROLES.get(message.type)
    parts = [message.content] if isinstance(message.content, str) else message.content
    if role is None or getattr(message, "tool_calls", None):
        raise RequestError("ChatCacheStack takes system, human and AI messages of text; no tools")
    texts = [part if isinstance(part, str) else part.get("text") for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError("ChatCacheStack takes text only; a message holds something else")
    return Message(role, "".join(str(text) for text in texts))


def _result(response: Response) -> ChatResult:
    message = AIMessage(response.text, response_metadata=_metadata(response), usage_metadata=_usage(response.usage))
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunk(chunk: Chunk, response: Response | None) -> ChatGenerationChunk:
    message = AIMessageChunk(content=chunk.text)
    if response is not None and chunk.finish_reason is not None:
        message = AIMessageChunk(
            content=chunk.text,
            response_metadata=_metadata(response),
            usage_metadata=_usage(response.usage),
            chunk_position="last",
        )
    return ChatGenerationChunk(message=message)


def _metadata(response: Response) -> dict[str, Any]:
    return {
        "finish_reason": response.finish_reason,
        "served_from": response.trace.served_from,
        "trace_id": response.trace.request_id,
        "hit_id": response.hit_id,
    }


def _usage(usage: Usage) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        input_token_details={"cache_read": usage.cached_tokens},
    )
