"""What the tables of traps share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.full.trap_support import ROOT


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, to be spoilt."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("cachestack", "tests", "policies", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "constraints.txt", "Makefile"):
        shutil.copy(ROOT / name, folder)
    return folder
