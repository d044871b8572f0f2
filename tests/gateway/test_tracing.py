"""Spans of the gateway's requests are below the caller's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cachestack.access import OpenAuthenticator
from cachestack.build import build_on
from cachestack.errors import ConfigError
from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.engines import offered
from cachestack.gateway.server import Gateway
from cachestack.stack import CacheStack
from tests.gateway.served import ScriptedEngine, Served, chat

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PATH = "/v1/chat/completions"


@pytest.mark.parametrize("stream", [False, True])
def test_the_incoming_traceparent_is_the_parent(
    tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=None, home=tmp_path)
    config = GatewayConfig(port=0, otel=True)
    gateway = Gateway(config, stack, [offered("scripted", engine)], OpenAuthenticator())
    with Served(gateway) as served, served.http() as http:
        below = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        for headers in (below, below, {}, {"traceparent": "nonsense"}):
            assert http.post(PATH, json=chat("Why?", stream=stream), headers=headers).status_code == 200
    spans = [span for span in exporter.get_finished_spans() if span.name.startswith("chat")]
    parents = [span.parent and (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") for span in spans]
    assert parents == [(TRACE, PARENT), (TRACE, PARENT), None, None]
    assert [span.attributes["cachestack.outcome"] for span in spans] == ["engine", "exact", "exact", "exact"]


PROGRAM = """
import sys
from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.server import Gateway
engines = {"a": {"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m", "retries": {"num_retries": 0}}}
gateway = Gateway.of(GatewayConfig(port=0, home=sys.argv[1], encoder="none", engines=engines, otel=True))
try:
    gateway.stack.chat("Why?")
except Exception:
    pass
gateway.stack.close()
"""


def run(home: Path, exporter: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "OTEL_TRACES_EXPORTER": exporter}
    command = [sys.executable, "-c", PROGRAM, str(home)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


def test_a_process_of_its_own_exports_as_the_variables_say(tmp_path: Path) -> None:
    done = run(tmp_path, "console")
    decoder, said = json.JSONDecoder(), done.stdout.strip()
    names = []
    while said:
        span, end = decoder.raw_decode(said)
        names.append((span["name"], span["resource"]["attributes"]["service.name"]))
        said = said[end:].strip()
    assert ("chat m", "cachestack") in names


def test_an_exporter_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "nowhere")
    assert ConfigError.__name__ in done.stderr
    assert "no exporter nowhere (OTEL_TRACES_EXPORTER)" in done.stderr
