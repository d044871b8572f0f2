"""One quick run for all tests that need a report."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from cachestack.bench.targets import targets_of
from cachestack.cli.app import main
from cachestack.engines.transformers import engine as engine_module
from cachestack.engines.transformers.engine import TransformersEngine

Document = dict[str, Any]


@pytest.fixture(scope="session")
def quick_run(local_engine: TransformersEngine) -> Document:
    """What `bench prefix --quick --json` prints and how it ends, with the model that is open already."""
    out, err = io.StringIO(), io.StringIO()
    model = local_engine.model
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(engine_module, "TransformersEngine", lambda name: local_engine)
        status = main(["bench", "prefix", "--quick", "--reps", "1", "--json", "--model", model])
    return {"status": status, "out": out.getvalue(), "err": err.getvalue(), "model": model}


@pytest.fixture
def document(quick_run: Document) -> Document:
    """A document of one's own."""
    found: Document = json.loads(quick_run["out"])
    return found


@pytest.fixture
def full(document: Document) -> Document:
    """A document of both prefixes and a peer, with figures that are made up."""
    (quick,) = document["prefix"].values()
    medians = {
        "167": {"single_over_floor": 1.05, "whole_over_packed": 7.9, "peer_over_packed": 1.7},
        "977": {"single_over_floor": 1.35, "whole_over_packed": 31.0, "peer_over_packed": 0.9},
    }
    for tokens, ratios in medians.items():
        prefix = document["prefix"][tokens] = copy.deepcopy(quick)
        prefix["peer_ms"] = 200.0
        prefix["agreement"]["peer_same_argmax"] = 0.9
        for name, median in ratios.items():
            prefix["ratios"][name] = {"median": median, "low": 0.9 * median, "high": 1.1 * median}
    del document["prefix"]["64"]
    document["cold_publish_by_length"] = {
        tokens: {"median": median, "low": median, "high": median} for tokens, median in (("977", 1.1), ("167", 1.3))
    }
    document["peer"] = {
        "name": "llama.cpp",
        "version": "llama-cpp-python 0.0",
        "weights": "Q4_1",
        "threads": 2,
        "flash_attention": False,
        "system": "",
        "way": "one by one",
    }
    document["quick"] = False
    document["targets"] = [target.to_json() for target in targets_of(document)]
    return document


@pytest.fixture
def saved(full: Document, tmp_path: Path) -> Callable[[], str]:
    """Writes `full` as it is then; the path for `--from`."""

    def save() -> str:
        path = tmp_path / "été.json"
        path.write_text(json.dumps(full, ensure_ascii=False), encoding="utf-8")
        return str(path)

    return save
