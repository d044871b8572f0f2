"""Taking a trap's fix out of a copy of the package, and running its test on that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAILED = 1
OTHERWISE = re.compile(r"^E +(NameError|SyntaxError|ImportError|ModuleNotFoundError|UnboundLocalError)", re.MULTILINE)
"""What a fault that is badly written comes to; no trap looks like this."""


@dataclass(frozen=True)
class Trap:
    """In `file` (under cachestack/), `fix` is replaced by `fault`; then `test` has to fail."""

    name: str
    file: str
    fix: str
    fault: str
    test: str


def check(copy: Path, trap: Trap) -> None:
    """Fails unless the test notices that the fix is gone. The copy is then as it was."""
    path = copy / "cachestack" / trap.file
    source = path.read_text("utf-8")
    assert source.count(trap.fix) == 1, f"{trap.file} has another text now: put its fix into this table"
    path.write_text(source.replace(trap.fix, trap.fault), "utf-8")
    try:
        done = _run(copy, [trap.test])
    finally:
        path.write_text(source, "utf-8")
    assert done.returncode == FAILED, f"{trap.test} does not notice:\n{done.stdout[-2000:]}\n{done.stderr[-500:]}"
    is_other = "error" in done.stdout.splitlines()[-1] or OTHERWISE.search(done.stdout)
    assert not is_other, f"it broke in another way:\n{done.stdout[-2000:]}"


def check_unspoilt(copy: Path, tests: Iterable[str]) -> None:
    """Fails unless these tests pass on the copy as it is, else a failure of theirs would mean nothing."""
    done = _run(copy, sorted(set(tests)))
    assert done.returncode == 0, done.stdout[-2000:]
    where = subprocess.run(
        [sys.executable, "-c", "import cachestack; print(cachestack.__file__)"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(copy) in where.stdout


def _run(copy: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not full", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=600, check=False)
