"""A key taken apart."""

from __future__ import annotations

from cachestack.access.api_key import read_key


def parts_of(key: str) -> tuple[str, str]:
    """Id and secret of what must be a key."""
    parts = read_key(key)
    assert parts is not None, "no key"
    return parts
