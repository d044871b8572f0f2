"""OpenTelemetry spans, by the GenAI semantic conventions. Needs the extra `otel`.

One span a request, made when it has ended, with a child for each step of its trace. What the conventions have no word
for is under `cachestack.`. Usage stands on requests that an engine answered, and only there: a hit costs nothing, and
whoever adds up tokens must not pay it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from cachestack import __version__
from cachestack.errors import MissingExtra
from cachestack.keys import digest
from cachestack.observers import Ended
from cachestack.observing.evidence import evidence_of
from cachestack.requests import Request

try:
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, get_tracer, set_span_in_context
except ImportError:
    raise MissingExtra("opentelemetry-sdk", "otel") from None

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

TenantNames = Literal["hashed", "plain", "none"]
Value = str | bool | int | float | Sequence[str]
_OPERATIONS = {"openai.completions": "text_completion"}


def trace_requests(
    stack: CacheStack,
    provider: TracerProvider | None = None,
    *,
    tenant: TenantNames = "hashed",
    with_text: bool = False,
) -> Callable[[], None]:
    """Make a span of each request of `stack` from now on; returns what ends that.

    `provider`: by default the global one. `tenant`: as a digest, by its name, or not at all. `with_text` adds questions
    and answers; without it no span has a word of them. A span's parent is the one that is current where the request
    ends: in the same thread or task.
    """
    return stack.observe(SpanMaker(provider, tenant=tenant, with_text=with_text))


class SpanMaker:
    """The observer that `trace_requests` adds."""

    def __init__(
        self, provider: TracerProvider | None = None, *, tenant: TenantNames = "hashed", with_text: bool = False
    ) -> None:
        self._tracer = get_tracer("cachestack", __version__, provider)
        self._tenant = tenant
        self._with_text = with_text

    def __call__(self, ended: Ended) -> None:
        trace, request = ended.trace, ended.request
        end_ns = int(ended.at_s * 1e9)
        begin_ns = end_ns - int(trace.seconds * 1e9)
        attributes = _attributes_of(ended)
        operation, model = attributes["gen_ai.operation.name"], attributes.get("gen_ai.request.model", "")
        if self._tenant != "none":
            attributes["cachestack.tenant"] = request.tenant if self._tenant == "plain" else hashed(request.tenant)
        if self._with_text:
            attributes |= _texts_of(ended)
        name = f"{operation} {model}".strip()
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes, start_time=begin_ns)
        if ended.outcome == "failed":
            text = str(ended.error) if self._with_text else type(ended.error).__name__
            span.set_status(Status(StatusCode.ERROR, text))
        context, at_ns = set_span_in_context(span), begin_ns
        for step in trace.steps if span.is_recording() else ():
            facts: dict[str, Value] = {
                "cachestack.layer": step.layer.value,
                "cachestack.outcome": step.outcome.value,
                "cachestack.reason": step.reason.value,
            }
            facts |= _flat(evidence_of(step), f"cachestack.{step.layer.value}.")
            child = self._tracer.start_span(
                f"cachestack.{step.layer.value}", context=context, attributes=facts, start_time=at_ns
            )
            at_ns += int(step.seconds * 1e9)
            child.end(min(at_ns, end_ns))
        span.end(end_ns)


def hashed(tenant: str) -> str:
    """A name that is the same everywhere and says little: whoever knows a tenant's name can find it by trying."""
    return digest(b"tenant", tenant.encode("utf-8", "surrogatepass"))[:16]


def _attributes_of(ended: Ended) -> dict[str, Any]:
    request, response, trace = ended.request, ended.response, ended.trace
    sampling = request.sampling
    model = next((step.detail["model"] for step in trace.steps if "model" in step.detail), request.model)
    semantic = next((step for step in trace.steps if step.layer.value == "semantic"), None)
    values: dict[str, Any] = {
        "gen_ai.operation.name": _OPERATIONS.get(request.dialect, "chat"),
        "gen_ai.provider.name": "cachestack",
        "gen_ai.request.model": model or None,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.request.max_tokens": sampling.max_new_tokens,
        "gen_ai.request.stop_sequences": sampling.stop or None,
        "gen_ai.request.choice.count": sampling.n if sampling.n != 1 else None,
        "cachestack.request_id": trace.request_id,
        "cachestack.outcome": ended.outcome,
        "cachestack.reason": None if semantic is None else semantic.reason.value,
        "error.type": type(ended.error).__name__ if ended.error is not None else None,
    }
    if response is not None:
        usage = response.usage
        values |= {
            "gen_ai.response.model": model or None,
            "gen_ai.response.finish_reasons": (response.finish_reason,),
            "cachestack.entry_id": response.hit_id,
        }
        if ended.outcome == "engine":
            values |= {
                "gen_ai.usage.input_tokens": usage.prompt_tokens,
                "gen_ai.usage.output_tokens": usage.completion_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            }
        else:
            values |= {
                "cachestack.saved.input_tokens": usage.prompt_tokens,
                "cachestack.saved.output_tokens": usage.completion_tokens,
            }
    return {key: value for key, value in values.items() if value is not None}


def _texts_of(ended: Ended) -> dict[str, str]:
    texts = {"gen_ai.input.messages": _messages(ended.request)}
    if ended.response is not None:
        answer = {"role": "assistant", "parts": [_part(ended.response.text)]}
        texts["gen_ai.output.messages"] = json.dumps([answer | {"finish_reason": ended.response.finish_reason}])
    return texts


def _messages(request: Request) -> str:
    return json.dumps([{"role": m.role, "parts": [_part(m.content)]} for m in request.messages])


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "content": text}


def _flat(values: Mapping[str, Any], above: str) -> dict[str, Value]:
    """Attributes have no inner structure, and no None."""
    flat: dict[str, Value] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{key}.")
        elif value is not None:
            flat[f"{above}{key}"] = value
    return flat
