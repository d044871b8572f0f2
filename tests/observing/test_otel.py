"""Spans as an exporter gets them."""

from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode

from cachestack.observing.otel import hashed, trace_requests
from cachestack.requests import Message, Request, Sampling

SECRET = "my PIN is 4711"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def roots(exporter):
    return [span for span in exporter.get_finished_spans() if span.parent is None]


def test_a_span_a_request_with_a_child_a_step(make_stack, provider, exporter, clock):
    stack = make_stack()
    trace_requests(stack, provider)
    sampling = Sampling(temperature=0.2, top_p=0.9, seed=7, stop=("\n",), max_new_tokens=64)
    request = Request((Message("user", "Hello"),), tenant="acme", sampling=sampling)
    response = stack.chat(request)
    (span,) = roots(exporter)
    assert span.name == "chat fixed-1"
    assert span.kind is SpanKind.CLIENT
    assert span.status.status_code is StatusCode.UNSET
    assert span.end_time == int(clock.now_s * 1e9)
    assert span.end_time - span.start_time == pytest.approx(response.trace.seconds * 1e9, abs=2)
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "cachestack",
        "gen_ai.request.model": "fixed-1",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.seed": 7,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.stop_sequences": ("\n",),
        "gen_ai.response.model": "fixed-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "cachestack.request_id": response.trace.request_id,
        "cachestack.outcome": "engine",
        "cachestack.reason": "no_encoder",
        "cachestack.entry_id": response.hit_id,
        "cachestack.tenant": hashed("acme"),
    }
    children = [s for s in exporter.get_finished_spans() if s.parent is not None]
    assert [s.attributes["cachestack.layer"] for s in children] == [s.layer.value for s in response.trace.steps]
    assert all(child.parent.span_id == span.context.span_id for child in children)
    assert all(span.start_time <= c.start_time <= c.end_time <= span.end_time for c in children)
    decode = next(s for s in children if s.name == "cachestack.decode")
    assert decode.attributes["cachestack.decode.ttft_s"] == 0.2


def test_a_hit_says_what_it_saved_and_spends_nothing(make_stack, provider, exporter):
    stack = make_stack()
    stack.chat("Hello")
    trace_requests(stack, provider)
    stack.chat("Hello")
    (span,) = roots(exporter)
    assert span.attributes["cachestack.outcome"] == span.attributes["cachestack.reason"] == "exact"
    assert (span.attributes["cachestack.saved.input_tokens"], span.attributes["cachestack.saved.output_tokens"]) == (
        100,
        11,
    )
    assert not any(key.startswith("gen_ai.usage") for key in span.attributes)


def test_a_failure_is_an_error_by_its_type(make_stack, provider, exporter, engine):
    stack = make_stack()
    trace_requests(stack, provider)
    engine.error = RuntimeError(f"cannot say {SECRET}")
    with pytest.raises(RuntimeError):
        stack.chat("Hello")
    (span,) = roots(exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes[error_attributes.ERROR_TYPE] == "RuntimeError"
    failed = [s for s in exporter.get_finished_spans() if s.attributes.get("cachestack.outcome") == "failed"]
    assert {s.attributes.get("cachestack.decode.error") for s in failed} >= {"RuntimeError"}
    assert SECRET not in "".join(s.to_json() for s in exporter.get_finished_spans())


def test_a_caller_that_left_is_no_error(make_stack, provider, exporter):
    stack = make_stack()
    trace_requests(stack, provider)
    with stack.stream("Hello") as stream:
        next(iter(stream))
    (span,) = roots(exporter)
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes["cachestack.outcome"] == "cancelled"
    assert span.attributes["error.type"] == "GeneratorExit"


def test_no_word_leaves_unless_it_is_asked_for(make_stack, provider, exporter):
    stack = make_stack()
    end = trace_requests(stack, provider)
    stack.chat(SECRET, system="Be brief.", tenant="acme")
    shown = "".join(s.to_json() for s in exporter.get_finished_spans())
    assert not any(word in shown for word in ("4711", "an answer", "Be brief", "acme"))
    end()
    exporter.clear()
    trace_requests(stack, provider, tenant="plain", with_text=True)
    stack.chat(SECRET, system="Be brief.", tenant="acme")
    (span,) = roots(exporter)
    assert span.attributes["cachestack.tenant"] == "acme"
    assert json.loads(span.attributes["gen_ai.input.messages"])[1] == {
        "role": "user",
        "parts": [{"type": "text", "content": SECRET}],
    }
    (answer,) = json.loads(span.attributes["gen_ai.output.messages"])
    assert answer["parts"] == [{"type": "text", "content": "an answer"}]
    assert answer["finish_reason"] == "stop"


def test_tenants_can_be_left_out(make_stack, provider, exporter):
    stack = make_stack()
    trace_requests(stack, provider, tenant="none")
    stack.chat("Hello", tenant="acme")
    assert not any("cachestack.tenant" in s.attributes for s in exporter.get_finished_spans())


def test_it_is_a_child_of_what_is_current(make_stack, provider, exporter):
    stack = make_stack()
    trace_requests(stack, provider)
    with provider.get_tracer("app").start_as_current_span("page") as page:
        stack.chat("Hello")
    span = next(s for s in exporter.get_finished_spans() if s.name.startswith("chat"))
    assert span.parent.span_id == page.get_span_context().span_id


async def test_also_in_asyncio(make_stack, provider, exporter):
    stack = make_stack()
    trace_requests(stack, provider)

    @stack.wrap(tenant="acme", model="m")
    async def ask(prompt: str) -> str:
        return "yes"

    with provider.get_tracer("app").start_as_current_span("page") as page:
        await ask("Hello")
    span = next(s for s in exporter.get_finished_spans() if s.name == "chat m")
    assert span.parent.span_id == page.get_span_context().span_id


def test_the_names_are_those_of_the_conventions(make_stack, provider, exporter):
    stack = make_stack()
    trace_requests(stack, provider, with_text=True)
    stack.chat("Hello", temperature=0.1, top_p=0.5, seed=1, stop="x", max_new_tokens=3)
    stack.chat("Hello", n=2)
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    used = {key for span in roots(exporter) for key in span.attributes if key.startswith("gen_ai.")}
    assert len(used) > 12
    assert used <= known
