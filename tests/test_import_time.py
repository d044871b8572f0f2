"""`import cachestack` is cheap, and loads none of the heavy libraries."""

from __future__ import annotations

import json
import subprocess
import sys

BUDGET_S = 0.1
RUNS = 7
# Timed inside: the start of the interpreter is not ours. Nothing of ours may be imported before the clock starts.
PROGRAM = """
import json, sys, time
start = time.perf_counter()
import cachestack
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""
HEAVY = {
    "torch",
    "transformers",
    "faiss",
    "sentence_transformers",
    "tokenizers",
    "safetensors",
    "gguf",
    "huggingface_hub",
}


def import_apart(program: str = PROGRAM) -> tuple[float, set[str]]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    return result["seconds"], set(result["modules"])


def test_the_import_takes_less_than_100_ms_and_nothing_heavy() -> None:
    runs = [import_apart() for _ in range(RUNS)]
    assert "cachestack" in runs[0][1]
    assert runs[0][1] & HEAVY == set()
    assert min(seconds for seconds, _ in runs) < BUDGET_S  # the best: others are slowed by what else runs here


def test_the_command_line_starts_without_heavy_libraries() -> None:
    program = PROGRAM.replace("import cachestack", "import cachestack.cli.app; cachestack.cli.app.build_app()")
    _, modules = import_apart(program)
    assert modules & HEAVY == set()
