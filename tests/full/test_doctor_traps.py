"""As `test_traps.py`, for the doctor, backups, migrations, and stores by reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full.trap_support import Trap, check, check_unspoilt

pytestmark = pytest.mark.full

DISK = "tests/upkeep/test_doctor_disk.py"
REDIS = "tests/upkeep/test_doctor_redis.py"
BACKUP = "tests/upkeep/test_backup.py"
MIGRATE = "tests/upkeep/test_migrate.py"

TRAPS = (
    Trap(
        "what is written while it is looked at taken for a fault",
        "stores/steady.py",
        'self._connection.execute("BEGIN")',
        "pass",
        f"{DISK}::test_a_store_that_is_written_to_meanwhile_is_clean",
    ),
    Trap(
        "what was invalidated comes back by a repair",
        "stores/mending.py",
        "[e for e in readable if not any(fence.holds_back(e, now_s) for fence in fences)]",
        "readable",
        f"{DISK}::test_what_was_invalidated_does_not_come_back_by_a_repair",
    ),
    Trap(
        "a record of changes that does not fit its number",
        "stores/mending.py",
        "                tenant.start_over(where)\n\n\ndef",
        "\n\ndef",
        f"{DISK}::test_a_fault_is_found_and_mended_and_the_rest_stays[changes]",
    ),
    Trap(
        "the older of two answers kept",
        "stores/mending.py",
        " or other.created_at_s < entry.created_at_s:",
        ":",
        f"{DISK}::test_two_entries_of_one_question_leave_the_newer",
    ),
    Trap(
        "a damaged file deleted without a word",
        "upkeep/findings.py",
        "        path.rename(target)\n",
        "        import shutil\n\n        shutil.rmtree(path)\n",
        f"{DISK}::test_a_file_that_was_put_aside_is_kept_and_told",
    ),
    Trap(
        "an entry that no invalidation finds",
        "stores/redis/auditing.py",
        "audited.faults[Fault.UNLISTED].append(seen.exact)",
        "pass",
        f"{REDIS}::test_a_fault_is_found_and_mended_and_the_rest_stays[record lost]",
    ),
    Trap(
        "entries in a wrong slot removed",
        "stores/redis/amending.py",
        "    return partition if slot in store.names.slots(partition) else None",
        "    return None",
        f"{REDIS}::test_a_partition_that_is_not_listed_is_listed_again[partition]",
    ),
    Trap(
        "a password in an error",
        "stores/opening.py",
        """rest = ref if "@" not in ref else f"{scheme}://***@{ref.rpartition('@')[2]}\"""",
        "rest = ref",
        "tests/stores/test_opening.py::test_a_password_is_never_shown",
    ),
    Trap(
        "a server without vector sets refuses every entry",
        "stores/redis/store.py",
        "return vectors if vectors is not None and self.link.has_vector_sets() else None",
        "return vectors",
        "tests/stores/test_opening.py::test_a_server_without_vector_sets_is_said_once_and_searched_all_the_same",
    ),
    Trap(
        "a backup that others write into",
        "upkeep/backups.py",
        "store.at_one_moment(everything) if isinstance(store, DiskStore) else store.select(everything)",
        "store.select(everything)",
        f"{BACKUP}::test_each_tenant_is_as_of_one_moment_while_others_write",
    ),
    Trap(
        "a damaged backup used",
        "upkeep/backups.py",
        'if (digest.hexdigest(), num_bytes) != (said["sha256"], said["num_bytes"]):',
        "if False:",
        f"{BACKUP}::test_a_changed_member_is_found_by_its_checksum",
    ),
    Trap(
        "a revoked key that a restore brings back",
        "access/key_file.py",
        "INSERT OR IGNORE INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        f"{BACKUP}::test_a_home_that_is_not_empty_needs_force_and_then_the_newer_stays",
    ),
    Trap(
        "statistics counted twice",
        "upkeep/restoring.py",
        "    if there or not sums:\n        return not there\n",
        "",
        f"{BACKUP}::test_a_home_that_is_not_empty_needs_force_and_then_the_newer_stays",
    ),
    Trap(
        "what was invalidated before a migration was repeated",
        "upkeep/moving.py",
        "for fence in () if self.dry_run else self.source.fences():",
        "for fence in ():",
        f"{MIGRATE}::test_what_is_invalidated_between_two_runs_is_gone_at_the_target",
    ),
    Trap(
        "what happens at the source while entries are moved",
        "upkeep/moving.py",
        "for _ in range(0 if self.dry_run else _ROUNDS):",
        "for _ in range(0):",
        f"{MIGRATE}::test_what_happens_at_the_source_meanwhile_is_followed",
    ),
    Trap(
        "an older entry over a newer one",
        "upkeep/moving.py",
        ", keep_newer=True):",
        "):",
        f"{MIGRATE}::test_the_newer_stays",
    ),
)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_test_of_a_trap_fails_when_its_fix_is_taken_out(copy: Path, trap: Trap) -> None:
    check(copy, trap)


def test_the_tests_pass_on_the_copy_as_it_is(copy: Path) -> None:
    check_unspoilt(copy, [trap.test for trap in TRAPS])
