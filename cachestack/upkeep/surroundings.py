"""What the state folder depends on: policies, and room on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from cachestack.errors import PolicyError, UnknownTenant
from cachestack.policy_set import PolicySet
from cachestack.upkeep.findings import Finding, Found, Looked, Severity

LOW_BYTES = 512 * 2**20
FULL_BYTES = 32 * 2**20
FreeBytes = Callable[[Path], int]


def check_policies(looked: Looked) -> Iterator[Found]:
    place = looked.policies or "the built-in policies"
    try:
        policies = PolicySet.load(looked.policies)
    except PolicyError as error:
        what = f"the policies do not load: a process that starts now ends with it, others keep the former: {error}"
        yield Found(Finding(Severity.ERROR, "policies", place, what))
        return
    for tenant, num_bytes in sorted(looked.tenant_bytes.items()):
        try:
            max_bytes = policies.policy(tenant).retention.max_bytes
        except UnknownTenant:
            what = f"tenant {tenant!r} has entries and no policy: nobody can ask for them"
            yield Found(Finding(Severity.NOTE, "policies", place, what))
            continue
        if num_bytes > max_bytes:
            what = f"tenant {tenant!r} has {num_bytes:,} bytes of its {max_bytes:,}: its next answer evicts the excess"
            yield Found(Finding(Severity.NOTE, "policies", place, what))


def check_free_space(
    looked: Looked, free_bytes: FreeBytes = lambda path: shutil.disk_usage(path).free
) -> Iterator[Found]:
    free = free_bytes(looked.home)
    if free < LOW_BYTES:
        severity = Severity.ERROR if free < FULL_BYTES else Severity.WARNING
        what = f"{free / 2**20:,.0f} MiB are free on this disk: once it is full, new answers are not kept"
        yield Found(Finding(severity, "disk space", str(looked.home), what))
