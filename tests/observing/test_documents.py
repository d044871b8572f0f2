"""docs/observability.md says what there is."""

from __future__ import annotations

import re
from pathlib import Path

from cachestack.observing.metrics import COUNTERS, GAUGES, HISTOGRAMS, OWN_COUNTERS, OWN_GAUGES

TEXT = (Path(__file__).parents[2] / "docs/observability.md").read_text(encoding="utf-8")


def test_the_table_has_every_metric_with_its_labels():
    rows = re.findall(r"^\| `(cachestack_\w+)` \| (\w+) \| ([^|]+) \|", TEXT, re.MULTILINE)
    expected = [
        (name, kind, ", ".join(("tenant", *described.labels)))
        for kind, group in (("counter", COUNTERS), ("histogram", HISTOGRAMS), ("gauge", GAUGES))
        for name, described in group.items()
    ]
    expected += [(name, "gauge", "–") for name in OWN_GAUGES] + [(name, "counter", "–") for name in OWN_COUNTERS]
    assert rows == [*expected, ("cachestack_build_info", "gauge", "version")]


def test_the_programs_run(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    programs = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(programs) == 3
    for program in programs:
        namespace: dict[str, object] = {}
        exec(compile(program, "observability.md", "exec"), namespace)
        namespace["stack"].close()
