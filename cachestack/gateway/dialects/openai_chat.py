"""OpenAI's `/v1/chat/completions`."""

from __future__ import annotations

import time
from typing import Any

from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models
from cachestack.bodies.openai_chat import read_chat
from cachestack.decisions import Response
from cachestack.gateway.dialect import Body
from cachestack.gateway.dialects.openai_error import openai_error
from cachestack.gateway.faults import Fault
from cachestack.gateway.wire import DONE, event
from cachestack.requests import Chunk, Usage


class OpenAIChat:
    def __init__(self, models: Models) -> None:
        self._models = models

    def parse(self, body: dict[str, Any], given: Given) -> Call:
        return read_chat(self._models, body, given)

    def body(self, call: Call, response: Response) -> Body:
        if response.body is not None:
            return response.body
        message = {"role": "assistant", "content": response.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": response.finish_reason}
        return {
            "id": f"chatcmpl-{response.trace.request_id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": call.model,
            "choices": [choice],
            "usage": usage_of(response.usage),
        }

    def events(self, call: Call, trace_id: str) -> ChatEvents:
        return ChatEvents(call, trace_id)


class ChatEvents:
    """`chat.completion.chunk` after `chat.completion.chunk`, `[DONE]` at the end."""

    def __init__(self, call: Call, trace_id: str) -> None:
        self._trace_id = trace_id
        self._include_usage = call.include_usage
        self._head = {
            "id": f"chatcmpl-{trace_id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": call.model,
        }

    def begin(self) -> bytes:
        return self._chunk([_choice({"role": "assistant", "content": "", "refusal": None})])

    def feed(self, chunk: Chunk) -> bytes:
        if chunk.delta is not None:
            passed = dict(chunk.delta.body)
            passed.pop("usage", None)
            return self._chunk(passed.pop("choices", []), passed)
        return self._chunk([_choice({"content": chunk.text})]) if chunk.text else b""

    def end(self, response: Response) -> bytes:
        made = response.body or {}
        choice: dict[str, Any] = next(iter(made.get("choices") or []), {})
        last = self._chunk([_choice({}, choice.get("finish_reason") or response.finish_reason)])
        return last + self._over(response)

    def whole(self, response: Response) -> bytes:
        sent = b""
        for number, choice in enumerate((response.body or {}).get("choices") or []):
            said = {k: v for k, v in (choice.get("message") or {}).items() if k != "role" and v is not None}
            if calls := said.get("tool_calls"):
                said["tool_calls"] = [{"index": i, **one} for i, one in enumerate(calls)]
            index = choice.get("index", number)
            sent += self._chunk([{**_choice(said), "index": index, "logprobs": choice.get("logprobs")}])
            sent += self._chunk([{**_choice({}, choice.get("finish_reason")), "index": index}])
        return sent + self._over(response)

    def _over(self, response: Response) -> bytes:
        if not self._include_usage:
            return DONE
        usage = (response.body or {}).get("usage") or usage_of(response.usage)
        return self._chunk([], {"usage": usage}) + DONE

    def failed(self, fault: Fault) -> bytes:
        return event(openai_error(fault, self._trace_id))

    def _chunk(self, choices: list[Any], others: Body | None = None) -> bytes:
        """Where the usage is asked for, every chunk has the field, as OpenAI's have."""
        usage = {"usage": None} if self._include_usage else {}
        return event({**usage, **(others or {}), **self._head, "choices": choices})


def _choice(delta: Body, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
