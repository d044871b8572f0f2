"""Engines from a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cachestack.build import remote_engines
from cachestack.engines.remote.anthropic import AnthropicEngine
from cachestack.engines.remote.openai import OpenAIEngine
from cachestack.errors import ConfigError
from tests.engines.remote.conftest import ask, run
from tests.upstream.server import Upstream


def test_engines_come_in_their_order(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UP_KEY", "k")
    text = f"""
    main: {{kind: openai, base_url: "{upstream.base_url}", model: m, provider: sglang, api_key_env: UP_KEY,
            timeouts: {{read_s: 3}}, retries: {{num_retries: 0}}, breaker: {{num_failures: 1, open_s: 5}}}}
    claude: {{kind: anthropic, base_url: "{upstream.base_url}", model: c, default_max_tokens: 7}}
    openai: {{kind: openai}}
    """
    engines = remote_engines(yaml.safe_load(text), home=tmp_path)
    assert list(engines) == ["main", "claude", "openai"]
    assert [type(engine) for engine in engines.values()] == [OpenAIEngine, AnthropicEngine, OpenAIEngine]
    assert [engine.provider for engine in engines.values()] == ["sglang", "anthropic", "openai"]
    run(engines["main"], ask())
    assert (upstream.last.body["model"], upstream.last.headers["authorization"]) == ("m", "Bearer k")
    assert "cache_salt" in upstream.last.body
    run(engines["claude"], ask())
    assert (upstream.last.path, upstream.last.body["max_tokens"]) == ("/v1/messages", 7)
    for engine in engines.values():
        engine.close()


WRONG: list[tuple[Any, str]] = [
    ({"kind": "soap"}, "openai"),
    ({}, "kind"),
    ("text", "dictionary|object"),
    ({"kind": "openai", "base": "x"}, "base"),
    ({"kind": "openai", "timeouts": {"read_s": 0}}, "read_s"),
    ({"kind": "openai", "api_key": "sk-secret"}, "api_key"),
    ({"kind": "openai", "base_url": "localhost"}, "base_url"),
    ({"kind": "openai", "api_key_env": "CACHESTACK_NOT_SET"}, "CACHESTACK_NOT_SET"),
    ({"kind": "anthropic", "provider": "vllm"}, "provider"),
]


@pytest.mark.parametrize(("values", "said"), WRONG, ids=str)
def test_what_is_wrong_is_named_with_its_engine(values: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as wrong:
        remote_engines({"main": values}, home=tmp_path)
    assert "main" in str(wrong.value)
    assert "sk-secret" not in str(wrong.value)
