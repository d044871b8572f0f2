"""Pairs of a question and an entry whose answers were compared, of one tenant.

A pair that was found wrong, or reported, is never served again, for as long as the entry may be. There is no room for
ever so many: an entry with `MAX_DENIED` such questions is not matched by meaning at all, and where a tenant has more
than `MAX_PAIRS`, pairs found right go first, then the entries that are nearest to their end, wholly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_PAIRS = 20_000
MAX_DENIED = 64
WHOLE = ""
"""In place of a question: the entry serves none by meaning."""


@dataclass(frozen=True, slots=True)
class Pair:
    """`exact`: the question's exact key, or `WHOLE`. `until_s`: when the entry is certainly gone."""

    exact: str
    entry_id: str
    wrong: bool
    until_s: float


@dataclass(slots=True)
class Pairs:
    """Reads and writes are the caller's to order."""

    max_pairs: int = MAX_PAIRS
    max_denied: int = MAX_DENIED
    _by_entry: dict[str, dict[str, Pair]] = field(default_factory=dict)
    _by_exact: dict[str, dict[str, Pair]] = field(default_factory=dict)
    _num: int = 0

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Iterator[Pair]:
        for of_entry in self._by_entry.values():
            yield from of_entry.values()

    def found(self, exact: str) -> tuple[frozenset[str], frozenset[str]]:
        """The entries that are denied to this question, and those that were found right for it."""
        known = self._by_exact.get(exact, {})
        whole = self._by_exact.get(WHOLE, {})
        if not known and not whole:
            return frozenset(), frozenset()
        denied = {entry_id for entry_id, pair in known.items() if pair.wrong} | set(whole)
        return frozenset(denied), frozenset(known) - denied

    def verdict(self, exact: str, entry_id: str) -> bool | None:
        """Whether it was found wrong; None where nobody has compared it."""
        of_entry = self._by_entry.get(entry_id, {})
        pair = of_entry.get(WHOLE) or of_entry.get(exact)
        return None if pair is None else pair.wrong

    def add(self, pair: Pair, now_s: float) -> list[Pair]:
        """Once wrong, a pair stays wrong. Returns what changed: added ones, and those that made room (with an
        `until_s` of 0)."""
        before = self._by_entry.get(pair.entry_id, {}).get(pair.exact)
        if before is not None and (before.wrong or before.wrong == pair.wrong):
            return []
        self._put(pair)
        changed = [pair]
        denied = [p for p in self._by_entry[pair.entry_id].values() if p.wrong]
        if len(denied) > self.max_denied and pair.exact != WHOLE:
            changed += self._close(pair.entry_id, max(p.until_s for p in denied))
        if self._num > self.max_pairs:
            changed += self._make_room(now_s)
        return changed

    def load(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self._put(pair)

    def drop_entry(self, entry_id: str) -> list[Pair]:
        """The entry is gone for good."""
        return [self._drop(pair) for pair in list(self._by_entry.get(entry_id, {}).values())]

    def _make_room(self, now_s: float) -> list[Pair]:
        """A tenth, so that it is not looked for each time."""
        enough = self.max_pairs - self.max_pairs // 10
        changed = [self._drop(pair) for pair in list(self) if pair.until_s <= now_s]
        for pair in [p for p in self if not p.wrong][: max(0, self._num - enough)]:
            changed.append(self._drop(pair))
        by_end = sorted(self._by_entry, key=lambda e: max(p.until_s for p in self._by_entry[e].values()))
        for entry_id in by_end:
            if self._num <= enough:
                break
            if len(self._by_entry[entry_id]) > 1:
                changed += self._close(entry_id, max(p.until_s for p in self._by_entry[entry_id].values()))
        return changed

    def _close(self, entry_id: str, until_s: float) -> list[Pair]:
        gone = [self._drop(pair) for pair in list(self._by_entry.get(entry_id, {}).values())]
        whole = Pair(WHOLE, entry_id, True, until_s)
        self._put(whole)
        return [*gone, whole]

    def _put(self, pair: Pair) -> None:
        of_entry = self._by_entry.setdefault(pair.entry_id, {})
        self._num += pair.exact not in of_entry
        of_entry[pair.exact] = pair
        self._by_exact.setdefault(pair.exact, {})[pair.entry_id] = pair

    def _drop(self, pair: Pair) -> Pair:
        for table, key, other in (
            (self._by_entry, pair.entry_id, pair.exact),
            (self._by_exact, pair.exact, pair.entry_id),
        ):
            table[key].pop(other, None)
            if not table[key]:
                del table[key]
        self._num -= 1
        return Pair(pair.exact, pair.entry_id, pair.wrong, 0.0)
