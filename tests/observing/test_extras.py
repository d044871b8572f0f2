"""Without the optional packages: an error that names the extra; and nothing loads them unasked."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [("prometheus_client", "exposition", "gateway"), ("opentelemetry", "otel", "otel")],
)
def test_a_missing_package_names_its_extra(package, module, extra):
    program = f"""
import sys
sys.modules[{package!r}] = None
from cachestack.errors import MissingExtra
try:
    import cachestack.observing.{module}
except MissingExtra as error:
    print(error)
"""
    assert f"pip install 'cachestack[{extra}]'" in run(program)


def test_nobody_loads_them_unasked():
    program = """
import sys
import cachestack.build, cachestack.cli.app
cachestack.cli.app.build_app()
print([name for name in ("prometheus_client", "opentelemetry") if name in sys.modules])
"""
    assert run(program) == "[]"
