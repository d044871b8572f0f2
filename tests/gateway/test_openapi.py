"""Whatever is sent, the gateway answers, and as its own OpenAPI document says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cachestack.build import build_on
from cachestack.gateway.openapi import openapi_document
from cachestack.stack import CacheStack
from tests.gateway.served import WAIT_S, ScriptedEngine, Served

AS_SAID = [status_code_conformance, content_type_conformance, response_schema_conformance]
FEW, MANY = 10, 100


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """On an engine that answers at once."""
    home = tmp_path_factory.mktemp("schemathesis")
    stack = build_on(CacheStack, {"scripted": ScriptedEngine()}, encoder="none", policies=None, home=home)
    with Served.on(stack) as served:
        yield served


def send_all(served: Served, num_examples: int, *, cache_only: bool) -> dict[int, int]:
    """To every operation, what the document allows and what it does not; how often each status came back."""
    seen: dict[int, int] = {}
    document = openapi_document()
    for schema in document["components"]["schemas"].values():
        if "model" in schema.get("properties", {}):  # another is answered with 404 before anything else is read
            schema["properties"]["model"] = {"enum": [served.model, "all-minilm-l6-v2"]}
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        for mode in GenerationMode:

            @settings(
                max_examples=num_examples,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            )
            @given(case=found.ok().as_strategy(generation_mode=mode))
            def send(case: schemathesis.Case) -> None:
                headers = {"Cache-Control": "only-if-cached"} if cache_only else {}
                response = case.call(base_url=served.url, headers=headers, timeout=WAIT_S)
                seen[response.status_code] = seen.get(response.status_code, 0) + 1
                is_no_hit = cache_only and response.status_code == 504
                case.validate_response(response, checks=AS_SAID if is_no_hit else [checks.not_a_server_error, *AS_SAID])

            with contextlib.suppress(Unsatisfiable):  # where there is nothing that could be sent wrongly
                send()
    return seen


def test_the_document_is_served_as_it_is(quick: Served) -> None:
    with quick.http() as http:
        assert http.get("/openapi.json").json() == openapi_document()


def test_nothing_breaks_it(quick: Served) -> None:
    seen = send_all(quick, FEW, cache_only=False)
    assert seen[200] > 15
    assert seen[400] > 50


def test_nothing_breaks_it_on_the_embedded_models(embedded: Served) -> None:
    """Without generating: the cache alone is asked. Labels and embeddings are made."""
    seen = send_all(embedded, FEW, cache_only=True)
    assert seen[200] > 5
    assert seen[400] > 50


@pytest.mark.full
def test_nothing_of_very_much_breaks_it(quick: Served, embedded: Served) -> None:
    send_all(quick, MANY, cache_only=False)
    send_all(embedded, MANY, cache_only=True)
