"""The examples run, as a user would start them, against the scripted upstream."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.upstream.server import Upstream

ROOT = Path(__file__).parents[2]
SAID = "Answer 1: How do I reset my password?"
EXPECTED = {
    "openai_client": [SAID, SAID, "1 of 2 from the cache"],
    "anthropic_client": [SAID, SAID, "1 of 2 from the cache"],
    "functions": ["Open the settings, then press Reset."] * 2,
    "langchain_cache": ["Press Reset."] * 2,
    "langchain_chat": ["engine ", "exact "],
    "litellm_cache": [SAID, SAID],
}


def test_each_example_is_run() -> None:
    assert sorted(path.stem for path in (ROOT / "examples").glob("*.py")) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_it_prints_what_it_should(
    name: str, tmp_path: Path, upstream: Upstream, models_dir: Path, encoder_path: Path, llm_path: Path
) -> None:
    if name == "litellm_cache" and find_spec("litellm") is None:
        pytest.skip("litellm pins versions that cachestack's own dependencies exclude; install it beside to test it")
    environment = os.environ | {
        "ANTHROPIC_API_KEY": "key",
        "ANTHROPIC_BASE_URL": upstream.root_url,
        "CACHESTACK_HOME": str(tmp_path),
        "CACHESTACK_MODELS": str(models_dir),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_API_BASE": upstream.base_url,
        "OPENAI_API_KEY": "key",
        "OPENAI_BASE_URL": upstream.base_url,
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= len(EXPECTED[name])
    for line, expected in zip(lines, EXPECTED[name], strict=False):
        assert line.startswith(expected)
