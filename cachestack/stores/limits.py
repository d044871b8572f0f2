"""What every store refuses, in the same words."""

from __future__ import annotations

from cachestack.entries import Selector
from cachestack.errors import EntryTooLarge, UsageError


def check_fits(num_bytes: int, max_bytes: int | None) -> None:
    """Raises EntryTooLarge for an entry that would not fit even if it were the tenant's only one."""
    if max_bytes is not None and num_bytes > max_bytes:
        raise EntryTooLarge(
            f"an entry of {num_bytes} bytes does not fit the tenant's budget of {max_bytes} bytes; "
            "raise the budget or cap the size of answers that are kept"
        )


def check_selector(selector: Selector) -> None:
    """Raises UsageError for a selector without a condition."""
    if selector == Selector():
        raise UsageError(
            "an empty selector would remove every entry of every tenant; give at least one of "
            "tenant, user, tag, version, created_before_s, entry_id"
        )
