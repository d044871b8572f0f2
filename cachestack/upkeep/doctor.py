"""All checks, one after the other, and their repairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cachestack.stores.opening import RedisRef
from cachestack.upkeep.entry_files import check_entry_files
from cachestack.upkeep.findings import REPAIR_ERRORS, CannotLook, Check, Finding, Found, Looked, Severity
from cachestack.upkeep.index_files import check_index_files
from cachestack.upkeep.small_files import (
    check_encoders,
    check_keys,
    check_left_behind,
    check_permissions,
    check_request_log,
    check_secret,
    check_statistics,
)
from cachestack.upkeep.surroundings import check_free_space, check_policies

CHECKS: tuple[Check, ...] = (
    check_entry_files,
    check_index_files,
    check_encoders,
    check_statistics,
    check_keys,
    check_secret,
    check_permissions,
    check_request_log,
    check_policies,
    check_free_space,
    check_left_behind,
)
CLEAN, FOUND, COULD_NOT_LOOK = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Examination:
    """`failures`: what could not be looked at, and why."""

    findings: tuple[Finding, ...]
    failures: tuple[str, ...]

    @property
    def status(self) -> int:
        """The exit status: 2 where a check could not be made, 1 where something is left that is not right, else 0."""
        if self.failures:
            return COULD_NOT_LOOK
        return FOUND if any(finding.is_open for finding in self.findings) else CLEAN

    def as_dict(self) -> dict[str, Any]:
        counts = {severity.value: sum(f.severity is severity for f in self.findings) for severity in Severity}
        return {
            "status": ("clean", "found", "could_not_look")[self.status],
            "counts": counts,
            "findings": [finding.as_dict() for finding in self.findings],
            "could_not_look": list(self.failures),
        }


def examine_all(looked: Looked, *, repair: bool = False, checks: Sequence[Check] | None = None) -> Examination:
    """Look at everything, and with `repair` put right what can be. A check that cannot be made leaves the others."""
    findings: list[Finding] = []
    failures: list[str] = []
    for check in (*_redis_checks(looked), *CHECKS) if checks is None else checks:
        try:
            found = list(check(looked))
        except (CannotLook, OSError) as error:
            failures.append(str(error))
            continue
        findings += _repaired(found) if repair else [one.finding for one in found]
    return Examination(tuple(findings), tuple(failures))


def _repaired(found: Sequence[Found]) -> Iterator[Finding]:
    for one in found:
        if one.mend is None:
            yield one.finding
            continue
        try:
            yield replace(one.finding, is_repaired=True, outcome=one.mend())
        except REPAIR_ERRORS as error:
            yield replace(one.finding, outcome=f"could not be done: {error}")


def _redis_checks(looked: Looked) -> Sequence[Check]:
    if not isinstance(looked.store, RedisRef):
        return ()
    from cachestack.upkeep.redis_server import check_redis_entries, check_redis_server

    return check_redis_server, check_redis_entries
