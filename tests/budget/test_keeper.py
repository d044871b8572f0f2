"""A tenant's budget on disk: kills, damage, several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cachestack.effects import Consult
from cachestack.keys import Partition
from cachestack.policy import Policy
from cachestack.semantic.budget import machine
from cachestack.semantic.budget.budgets import Budgets
from cachestack.semantic.budget.keeper import Keeper, read_folder
from cachestack.semantic.budget.pairs import Pair
from cachestack.semantic.budget.state import Mode
from cachestack.semantic.budget.tenant import TenantBudget

if TYPE_CHECKING:
    from cachestack.semantic.budget.terms import Terms

POLICY = Policy.model_validate({"budget": {"max_wrong_hit_rate": 0.02}})
WRITER = """
import sys, itertools
from pathlib import Path
from cachestack.semantic.budget import machine
from cachestack.semantic.budget.keeper import Keeper
from cachestack.semantic.budget.pairs import Pair
from cachestack.semantic.budget.tenant import TenantBudget
tenant = TenantBudget("acme", Keeper(Path(sys.argv[1]), "acme", lambda: 0.0), lambda: 0.0, lambda *_: None)
tenant.refresh()
for number in itertools.count():
    tenant.step("en", lambda s: machine.served(s, verified=False, watched=True))
    tenant.add_pair(Pair(f"q{number}", "entry%d" % (number // 10), True, 1e12))
    tenant.flush()
    print(number + 1, flush=True)
"""


def opened(folder: Path, tenant: str = "acme") -> TenantBudget:
    found = TenantBudget(tenant, Keeper(folder, tenant, lambda: 500.0), lambda: 500.0, lambda *_: None)
    found.refresh()
    return found


def consult(budgets: Budgets, tenant: str = "acme", encoder: str = "e", policy: Policy = POLICY) -> Terms:
    return budgets.consult(Consult(Partition(tenant), "question", "en", encoder, policy))


def test_what_was_said_to_be_written_survives_a_kill(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = 0
    for line in process.stdout:
        told = int(line)
        if told >= 40:
            os.kill(process.pid, signal.SIGKILL)
            break
    told = max([told, *(int(line) for line in process.stdout)])
    process.wait()
    process.stdout.close()
    found = opened(tmp_path)
    assert told <= found.state("en").hits <= told + 1
    assert len(found.pairs) == found.state("en").hits
    assert all(found.pairs.verdict(f"q{n}", f"entry{n // 10}") for n in range(told))
    found.close()


def test_after_a_restart_all_is_as_it_was_in_memory(tmp_path: Path) -> None:
    first = opened(tmp_path)
    budget = POLICY.budget
    first.step("en", lambda s: machine.followed(s, budget, "b", 1.0))
    for number in range(300):
        step = partial(machine.compared, score=0.8, wrong=number % 3 == 0, policy=budget, now_s=1.0, would_serve=True)
        first.step("en", step)
        first.step("fr", lambda s: machine.followed(s, budget, "b", 2.0))
    first.step("en", partial(machine.audited, score=0.95, wrong=True, probability=0.1, policy=budget, now_s=3.0))
    first.add_pair(Pair("q", "e", True, 1e9))
    before, pairs = first.states(), list(first.pairs)
    first.close()
    second = opened(tmp_path)
    assert second.states() == before
    assert list(second.pairs) == pairs
    second.close()


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 100, "half", "rows"])
def test_a_damaged_file_begins_anew_in_shadow_and_trusts_no_entry_from_before(
    tmp_path: Path, damage: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    first = Budgets(tmp_path, lambda: 100.0)
    assert consult(first).mode is Mode.SERVING
    assert first.wait(30)
    first.close()
    (path,) = tmp_path.glob("*.sqlite")
    if damage == "rows":
        keeper = Keeper(tmp_path, "acme", lambda: 0.0)
        keeper.read()
        keeper._opened().execute("UPDATE states SET state = '{}'")
        keeper.close()
    else:
        for other in tmp_path.glob("*.sqlite-*"):
            other.unlink()
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if isinstance(damage, str) else damage)
    second = Budgets(tmp_path, lambda: 200.0)
    terms = consult(second)
    if damage == b"":  # as if it had never been there: nothing says that it was
        assert terms.mode is Mode.SERVING
    else:
        assert terms.mode is Mode.SHADOW
        assert terms.trusted_from_s == 200.0
        assert "begins anew in shadow" in caplog.text
        assert list(tmp_path.glob("*.damaged"))
    second.close()


def test_a_folder_that_cannot_be_used_keeps_it_in_memory_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    budgets = Budgets(tmp_path / "file", lambda: 1.0)
    assert [consult(budgets).mode for _ in range(3)] == [Mode.SERVING] * 3
    budgets.wait(30)
    assert caplog.text.count("cannot be kept on disk") == 1
    budgets.close()


def test_two_processes_add_to_each_other(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    for _ in range(5):
        one.step("en", lambda s: machine.served(s, verified=False, watched=True))
        other.step("en", lambda s: machine.served(s, verified=True, watched=True))
        one.flush()
        other.flush()
    one.add_pair(Pair("q", "e", True, 1e9))
    one.flush()
    other.add_pair(Pair("q", "e", False, 1e9))  # found right here, before it heard of the other's verdict
    other.flush()
    one.refresh()
    other.refresh()
    assert one.state("en") == other.state("en")
    assert one.state("en").hits == 10
    assert one.pairs.verdict("q", "e") is other.pairs.verdict("q", "e") is True
    one.close()
    other.close()


def test_labels_of_one_tenant_never_move_another(tmp_path: Path) -> None:
    acme, other = opened(tmp_path), opened(tmp_path, "other")
    before = other.states()
    for _ in range(50):
        acme.step(
            "en", partial(machine.compared, score=0.9, wrong=True, policy=POLICY.budget, now_s=1.0, would_serve=True)
        )
    acme.add_pair(Pair("q", "e", True, 1e9))
    acme.flush()
    other.refresh()
    assert other.states() == before
    assert other.pairs.verdict("q", "e") is None
    assert set(read_folder(tmp_path)) == {"acme", "other"}
    acme.close()
    other.close()


def test_another_encoder_forgets_the_labels(tmp_path: Path) -> None:
    budgets = Budgets(tmp_path, lambda: 1.0)
    consult(budgets)
    tenant = budgets._of("acme")
    for _ in range(50):
        tenant.step(
            "en", partial(machine.compared, score=0.9, wrong=True, policy=POLICY.budget, now_s=1.0, would_serve=True)
        )
    strict = consult(budgets).threshold
    assert strict is None or strict > 0.94
    assert consult(budgets, encoder="another").threshold == consult(Budgets(None, lambda: 1.0)).threshold
    budgets.close()
