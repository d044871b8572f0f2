"""Deltas put together: what one event adds to what the former ones said."""

from __future__ import annotations

from typing import Any

SET = frozenset({"role", "id", "type", "object", "index", "finish_reason", "stop_reason", "name", "created", "model"})
"""Fields that are said, not continued: a server that repeats one does not mean it twice as long."""


def merge(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    """Text is continued, lists of things with an `index` are merged by it, others extended, the rest replaced."""
    for key, value in delta.items():
        if value is None:
            whole.setdefault(key, None)
            continue
        before = whole.get(key)
        if isinstance(value, str) and isinstance(before, str) and key not in SET:
            whole[key] = before + value
        elif isinstance(value, dict) and isinstance(before, dict):
            merge(before, value)
        elif isinstance(value, list):
            whole[key] = _merged_lists(before if isinstance(before, list) else [], value)
        elif isinstance(value, dict):
            whole[key] = {}
            merge(whole[key], value)
        else:
            whole[key] = value


def _merged_lists(before: list[Any], added: list[Any]) -> list[Any]:
    for item in added:
        index = item.get("index") if isinstance(item, dict) else None
        same = next((b for b in before if isinstance(b, dict) and b.get("index") == index), None)
        if index is None or same is None:
            fresh: dict[str, Any] = {}
            if isinstance(item, dict):
                merge(fresh, item)
            before.append(fresh if isinstance(item, dict) else item)
        else:
            merge(same, item)
    return before
