"""`cachestack budget` and `cachestack report`, on a home that a stack under a budget has used."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from cachestack.build import build_on
from cachestack.cli.app import main
from cachestack.requests import Generation, Request
from cachestack.stack import CacheStack

FIRST, AGAIN = "How do I reset my password?", "How can I reset my password?"
POLICY = (
    "default: {budget: {max_wrong_hit_rate: 0.05, max_audits_per_hour: 0}}\n"
    "tenants: {acme: {}, rival: {budget: {mode: shadow}}, free: {budget: {max_wrong_hit_rate: null}}}\n"
)


ANSWER = "In the settings, under Security."


class Engine:
    name = model = "engine"

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield ANSWER
        return Generation(ANSWER)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path / "home"))
    (tmp_path / "policy.yaml").write_text(POLICY)
    monkeypatch.setenv("CACHESTACK_POLICIES", str(tmp_path / "policy.yaml"))
    return tmp_path / "home"


@pytest.fixture
def hit_id(home: Path, tmp_path: Path, encoder_path: Path) -> str:
    """Acme's hit by meaning; rival's is counted in shadow, and free has no budget."""
    policies = tmp_path / "policy.yaml"
    with build_on(CacheStack, {"engine": Engine()}, encoder=str(encoder_path), policies=policies, home=home) as stack:
        for tenant in ("rival", "free", "acme"):
            stack.chat(FIRST, tenant=tenant)
            response = stack.chat(AGAIN, tenant=tenant)
        assert stack.budgets.wait(30)
        assert response.trace.served_from == "semantic"
        return response.trace.request_id


def served_from(home: Path, policies: Path, encoder_path: Path, question: str) -> str | None:
    with build_on(CacheStack, {"engine": Engine()}, encoder=str(encoder_path), policies=policies, home=home) as stack:
        return stack.chat(question, tenant="acme").trace.served_from


@pytest.mark.usefixtures("hit_id")
def test_budgets_are_shown_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["budgets"]
    assert set(found) == {"acme", "rival"}, "free has no budget"
    of = found["acme"]["en"]
    assert (of["state"], of["budget"], of["threshold"], of["hits"], of["audits"]) == ("serving", 0.05, 0.9, 1, 0)
    assert of["has_few_labels"]
    assert of["interval"] == [0.0, 1.0]
    assert [row["threshold"] for row in of["thresholds"] if row["in_force"]] == [0.9]
    shadowed = found["rival"]["en"]
    assert (shadowed["state"], shadowed["hits"], shadowed["compared"]) == ("shadow", 0, 1)


@pytest.mark.usefixtures("hit_id")
def test_budgets_are_shown_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "--tenant", "acme"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Tenant acme, en: serving (begun), threshold 0.90; budget 5.0%" in shown
    assert "← in force" in shown
    assert "few labels: the strict beginning holds" in shown
    assert "rival" not in shown


@pytest.mark.usefixtures("hit_id")
@pytest.mark.parametrize("tenant", ["free", "nobody"])
def test_a_tenant_without_a_budget_is_told_which_have_one(tenant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "--tenant", tenant]) == 2
    assert "there are: acme, rival" in capsys.readouterr().err


def test_where_no_budget_was_kept_it_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget"]) == 0
    assert "no error budgets yet" in capsys.readouterr().out
    assert main(["budget", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"budgets": {}}
    assert not home.exists(), "looking makes nothing"


def test_a_hit_reported_wrong_is_not_served_to_its_question_again(
    hit_id: str, home: Path, tmp_path: Path, encoder_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", hit_id, "--wrong", "--tenant", "acme", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"reported": "wrong"}
    assert main(["budget", "--tenant", "acme", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["budgets"]["acme"]["en"]["reported_wrong"] == 1
    assert served_from(home, tmp_path / "policy.yaml", encoder_path, AGAIN) == "engine"
    assert served_from(home, tmp_path / "policy.yaml", encoder_path, FIRST) == "exact"


def test_with_remove_the_entry_goes_too(hit_id: str, home: Path, tmp_path: Path, encoder_path: Path) -> None:
    assert main(["report", hit_id, "--wrong", "--remove", "--tenant", "acme"]) == 0
    assert served_from(home, tmp_path / "policy.yaml", encoder_path, FIRST) == "engine"


def test_a_hit_reported_right_is_counted_and_served_on(
    hit_id: str, home: Path, tmp_path: Path, encoder_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", hit_id, "--right", "--tenant", "acme"]) == 0
    assert capsys.readouterr().out == "reported right\n"
    assert main(["budget", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["budgets"]["acme"]["en"]["reported_right"] == 1
    assert served_from(home, tmp_path / "policy.yaml", encoder_path, AGAIN) == "semantic"


def test_another_tenant_s_hit_and_an_unknown_one_are_nobody_s(
    hit_id: str, home: Path, tmp_path: Path, encoder_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given, tenant in ((hit_id, "rival"), ("no-such-hit", "acme")):
        for verdict in ("--wrong", "--right"):
            assert main(["report", given, verdict, "--tenant", tenant]) == 2
            assert "nothing was counted" in capsys.readouterr().err
    assert served_from(home, tmp_path / "policy.yaml", encoder_path, AGAIN) == "semantic"


@pytest.mark.parametrize(
    "arguments", [["x"], ["--wrong"], ["x", "--right", "--remove"]], ids=["no verdict", "no hit", "right and removed"]
)
@pytest.mark.usefixtures("home")
def test_wrong_calls_are_named(arguments: list[str]) -> None:
    assert main(["report", *arguments]) == 2
