"""What README.md and docs/gateway.md show works as it is shown."""

from __future__ import annotations

import re
from typing import Any

from cachestack.gateway.config import load_config
from cachestack.gateway.openapi import openapi_document
from tests.gateway.served import Served
from tests.test_readme import ROOT, blocks

PAGE = ROOT / "docs" / "gateway.md"
ADDRESS = "http://127.0.0.1:8080"


def run(program: str, served: Served, names: dict[str, Any]) -> dict[str, Any]:
    assert ADDRESS in program
    exec(compile(program.replace(ADDRESS, served.url), "shown", "exec"), names)
    return names


def test_the_readme_s_client_gets_a_cached_answer(embedded: Served) -> None:
    (program,) = [one for one in blocks("python") if ADDRESS in one]
    assert program.count("# the changed line") == 1
    names = run(program, embedded, {})
    usage = names["answer"].usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens > 0


def test_the_clients_of_the_page(embedded: Served) -> None:
    names: dict[str, Any] = {}
    for program in blocks("python", PAGE):
        run(program, embedded, names)
    assert names["answer"].choices[0].message.content == names["message"].content[0].text


def test_the_configuration_of_the_page_loads(tmp_path: Any) -> None:
    (text,) = blocks("yml", PAGE)
    (tmp_path / "gateway.yaml").write_text(text)
    config = load_config(tmp_path / "gateway.yaml", {})
    assert list(config.engines) == ["openai", "vllm", "small"]


def test_the_routes_of_the_page_are_those_of_the_document() -> None:
    shown = set(re.findall(r"`(GET|POST|DELETE) (/[^`]*)`", PAGE.read_text(encoding="utf-8")))
    served = {(m.upper(), path) for path, methods in openapi_document()["paths"].items() for m in methods}
    assert shown == served
