"""The engine, prefix and classification tests under the oldest Transformers that pyproject.toml allows.

It is put before the installed one, with those libraries of which it needs other versions; all else is as installed.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
TESTS = ("tests/engines", "tests/prefix", "tests/classify")
UNREACHABLE = re.compile(r"connection|timed out|resolution|unreachable|proxy|Could not fetch URL", re.IGNORECASE)
VERSIONS = (
    "import json, torch, transformers, tokenizers, huggingface_hub as hub; "
    "print(json.dumps({m.__name__: m.__version__ for m in (torch, transformers, tokenizers, hub)}))"
)


def oldest() -> str:
    """Such as "5.15", from `transformers>=5.15,<6`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    allowed = next(r for r in map(Requirement, project["optional-dependencies"]["local"]) if r.name == "transformers")
    (least,) = (s.version for s in allowed.specifier if s.operator == ">=")
    return least


def install(folder: Path, *requirements: str) -> None:
    """Skips the test where no package index answers, and fails it for all else that goes wrong."""
    options = ["--disable-pip-version-check", "--quiet", "--no-deps", "--retries", "1", "--timeout", "20"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), *requirements],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"no package index can be reached for {', '.join(requirements)}: {done.stderr.strip()[:300]}")
    assert done.returncode == 0, done.stderr


def unmet(folder: Path) -> list[str]:
    """What the packages in `folder` need that neither it nor the environment has."""
    here = {
        d.metadata["Name"].lower().replace("_", "-"): d for d in importlib.metadata.distributions(path=[str(folder)])
    }

    def has(needed: Requirement) -> bool:
        name = needed.name.lower().replace("_", "-")
        try:
            found = here.get(name) or importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return False
        return needed.specifier.contains(found.version, prereleases=True)

    needed = [Requirement(text) for package in here.values() for text in package.requires or ()]
    return sorted({str(r) for r in needed if (r.marker is None or r.marker.evaluate({"extra": ""})) and not has(r)})


@pytest.mark.usefixtures("llm_path")
def test_the_oldest_supported_transformers_passes_the_tests_of_the_engine(tmp_path: Path) -> None:
    install(tmp_path, f"transformers=={oldest()}.*")
    while others := unmet(tmp_path):
        install(tmp_path, *others)
    paths = [str(tmp_path), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("PYTEST_ADDOPTS", None)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    told = run("-c", VERSIONS)
    assert told.returncode == 0, told.stderr
    versions = json.loads(told.stdout)
    print(f"\nran with {versions}")
    assert re.fullmatch(rf"{re.escape(oldest())}(\.\d+)*", versions["transformers"])
    done = run("-m", "pytest", "-q", "-m", "not full", "-p", "no:cacheprovider", *TESTS)
    print(done.stdout[-20_000:])
    assert done.returncode == 0, f"{versions}\n{done.stdout[-6_000:]}"
    assert re.search(r"\d+ passed", done.stdout)
