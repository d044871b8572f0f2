"""OpenTelemetry for the gateway: spans of all requests, below the caller's own where it sends `traceparent`.

Where the process has no tracer provider of its own (an agent that instruments it sets one), one is made, with the
exporter that OTEL_TRACES_EXPORTER names; `otlp` is the default. OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_TRACES_SAMPLER and the like mean what they always do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from cachestack.errors import ConfigError, MissingExtra
from cachestack.gateway.requesting import Within
from cachestack.observing.otel import trace_requests
from cachestack.stack import CacheStack

try:
    from opentelemetry import context, trace
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
except ImportError:
    raise MissingExtra("opentelemetry-sdk", "otel") from None

_EXPORTERS = "opentelemetry_traces_exporter"


def begin_tracing(stack: CacheStack, provider: trace.TracerProvider | None = None) -> Within:
    """Spans of the stack's requests from now on; what is returned makes a request's headers their parent.

    `provider`: by default the process's own. Raises ConfigError where there is no exporter.
    """
    if provider is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(_own_provider())
    trace_requests(stack, provider)
    return below_caller


@contextmanager
def below_caller(headers: Mapping[str, str]) -> Iterator[None]:
    token = context.attach(extract(headers))
    try:
        yield
    finally:
        context.detach(token)


def _own_provider() -> TracerProvider:
    """What is left to export when the process ends is exported then."""
    name = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    names = ("otlp_proto_http", "otlp_proto_grpc", "otlp") if name == "otlp" else (name,)
    found: dict[str, Any] = {one.name: one for one in entry_points(group=_EXPORTERS)}
    chosen = next((found[one] for one in names if one in found), None)
    if name != "none" and chosen is None:
        package = "opentelemetry-exporter-otlp-proto-http" if name == "otlp" else "its package"
        raise ConfigError(
            f"otel: there is no exporter {name} (OTEL_TRACES_EXPORTER); install {package}, or choose one of "
            f"{', '.join(sorted(found)) or 'none'}"
        )
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if is_named else {"service.name": "cachestack"}))
    if chosen is not None and name != "none":
        provider.add_span_processor(BatchSpanProcessor(chosen.load()()))
    return provider
