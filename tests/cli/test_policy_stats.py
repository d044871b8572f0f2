"""`cachestack policy` and `cachestack stats` from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.stats import Stats
from cachestack.stores.sums import SumsFile

ROOT = Path(__file__).parents[2]


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    captured = capsys.readouterr()
    parsed = json.loads(captured.out)
    assert isinstance(parsed, dict)
    return parsed


def test_check_names_every_file_and_fails_on_a_typo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.yaml").write_text("tenants: {a: {}}")
    assert main(["policy", "check", str(tmp_path), "--json"]) == 0
    assert document(capsys)["files"] == {str(tmp_path / "good.yaml"): {"ok": True, "tenants": ["a"], "errors": []}}
    (tmp_path / "bad.yaml").write_text("default: {semantic: {sensitiv: true}}")
    assert main(["policy", "check", str(tmp_path), "--json"]) == 1
    files = document(capsys)["files"]
    assert isinstance(files, dict)
    assert "did you mean 'sensitive'?" in files[str(tmp_path / "bad.yaml")]["errors"][0]
    assert main(["policy", "check", str(tmp_path / "bad.yaml")]) == 1
    assert "Allowed: enabled, by_meaning" in capsys.readouterr().err


def test_check_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", str(tmp_path)]) == 2
    assert "holds no .yaml file" in capsys.readouterr().err
    assert main(["policy", "check", str(tmp_path / "none.yaml")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_show_gives_values_and_origins(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "policies/support-desk.yaml")
    assert main(["policy", "show", "acme-billing", "--policies", path, "--json"]) == 0
    values = document(capsys)["values"]
    assert isinstance(values, dict)
    assert values["semantic.sensitive"] == {"value": True, "origin": f"tenants.acme-billing in {path}"}
    assert values["fallback.num_retries"] == {"value": 1, "origin": "built in"}
    assert main(["policy", "show", "acme-billing", "--policies", path]) == 0
    shown = capsys.readouterr().out
    assert "retry, stale, raise" in shown


def test_show_refuses_an_unknown_tenant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "show", "nobody", "--policies", str(ROOT / "policies/strict.yaml")]) == 2
    assert "named there: acme, hospital" in capsys.readouterr().err


def test_stats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    assert main(["stats", "--json"]) == 0
    kept = {"ref": str(tmp_path), "state": "ok", "num_entries": 0, "num_bytes": 0}
    assert document(capsys) == {"tenants": {}, "store": kept}
    assert main(["stats"]) == 0
    assert "no requests yet" in capsys.readouterr().out
    stats = Stats(SumsFile(tmp_path / "stats"))
    stats.count("acme", requests=3, semantic__hit__exact=2, semantic__miss__no_entry=1)
    stats.count("other", requests=1)
    stats.close()
    assert main(["stats", "--tenant", "acme", "--json"]) == 0
    tenants = document(capsys)["tenants"]
    assert isinstance(tenants, dict)
    assert list(tenants) == ["acme"]
    assert tenants["acme"]["semantic"] == {
        "lookups": 3,
        "hits": {"exact": 2},
        "partials": 0,
        "misses": {"no_entry": 1},
        "bypasses": {},
        "hit_rate": 2 / 3,
    }
    assert main(["stats"]) == 0
    assert "3 look-ups, hit rate 66.7%; hits exact 2" in capsys.readouterr().out
    assert main(["stats", "--tenant", "nobody"]) == 2
    assert "tenants there: acme, other" in capsys.readouterr().err
