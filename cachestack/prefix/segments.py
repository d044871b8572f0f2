"""Segments of kept KV and the index that finds them by block hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cachestack.engines.base import KVRun
from cachestack.keys import digest
from cachestack.prefix.base import Label, SavedSeconds, Space, unknown_cost
from cachestack.prefix.principals import Principals

Hasher = Callable[[Sequence[int], int, str, bytes], Iterator[bytes]]
_Place = bytes | tuple[bytes | int, ...]
_Table = dict[_Place, dict["Segment", None]]


@dataclass(slots=True, eq=False)
class Segment:
    """One kept run with its token ids.

    `num_readers` counts leases of paths through it, `num_pins` pins. `num_bytes` is the memory that it takes, also
    where the run has been cut short since. `num_uses` counts matches, `used_s` is the time of the last one.
    """

    run: KVRun
    ids: tuple[int, ...]
    space: Space
    label: Label
    parent: Segment | None = None
    cost: SavedSeconds = unknown_cost
    num_bytes: int = 0
    num_children: int = 0
    num_readers: int = 0
    num_pins: int = 0
    num_uses: int = 0
    used_s: float = 0.0
    principals: Principals = field(default_factory=Principals)
    is_removed: bool = False

    @property
    def is_held(self) -> bool:
        return self.num_readers > 0 or self.num_pins > 0

    @property
    def saved_s(self) -> float:
        """Seconds of prefill that one use of all of it saves, as far as is known now."""
        return self.cost(self.start, self.stop)

    @property
    def start(self) -> int:
        return self.run.start

    @property
    def stop(self) -> int:
        return self.run.start + self.run.num_tokens

    def path(self) -> tuple[Segment, ...]:
        """From the root to this segment."""
        steps: list[Segment] = []
        step: Segment | None = self
        while step is not None:
            steps.append(step)
            step = step.parent
        return tuple(reversed(steps))


@dataclass(frozen=True, slots=True)
class Found:
    """The longest known beginning of a prompt: the path of `segment`, up to `num_tokens` tokens from token 0."""

    segment: Segment
    num_tokens: int


class SegmentIndex:
    """Segments by where their tokens lie: a look-up walks blocks, then the tokens of one block, never segments.

    `_ends[h]`: owners of the last token of the full block whose chained hash is h. The chain can be walked block by
    block: no segment is there without those before it.
    `_within[h, tokens]`: owners of the last of `tokens`, which begin the block that follows h and do not fill it.
    """

    def __init__(self, block_size: int, hasher: Hasher) -> None:
        self._block_size = block_size
        self._hasher = hasher
        self._ends: _Table = {}
        self._within: _Table = {}

    def longest(self, ids: Sequence[int], max_tokens: int, space: Space) -> Found | None:
        """The longest known beginning of `ids[:max_tokens]`, its token ids compared one by one."""
        size = self._block_size
        hashes = [_root(space)]
        for block_hash in self._hasher(ids[:max_tokens], size, space.fingerprint, space.salt):
            if block_hash not in self._ends:
                break
            hashes.append(block_hash)
        for num_blocks in range(len(hashes) - 1, -1, -1):  # further down only where hashes lied
            block_hash, before = hashes[num_blocks], num_blocks * size
            stops = [(before, self._ends.get(block_hash, {}))]
            for stop in range(before + 1, min(max_tokens, before + size - 1) + 1):
                owners = self._within.get((block_hash, *ids[before:stop]))
                if owners is None:
                    break
                stops.append((stop, owners))
            for stop, owners in reversed(stops):
                for segment in owners:
                    if _holds(segment, ids, stop):
                        return Found(segment, stop)
        return None

    def add(self, segment: Segment, ids: Sequence[int]) -> None:
        """`ids`: the whole path's, at least up to the segment's end."""
        for table, place in self._places(segment, ids):
            table.setdefault(place, {})[segment] = None

    def remove(self, segment: Segment) -> None:
        for table, place in self._places(segment, path_ids(segment)):
            owners = table[place]
            del owners[segment]
            if not owners:
                del table[place]

    def check(self, segments: Iterable[Segment]) -> None:
        """Raises AssertionError unless exactly `segments` are in the index, each in all its places."""
        expected = SegmentIndex(self._block_size, self._hasher)
        for segment in segments:
            expected.add(segment, path_ids(segment))
        for ours, theirs, name in (
            (self._ends, expected._ends, "block ends"),
            (self._within, expected._within, "tokens within blocks"),
        ):
            assert ours.keys() == theirs.keys(), f"index of {name}: {len(ours)} places, {len(theirs)} expected"
            for place, owners in theirs.items():
                assert ours[place].keys() == owners.keys(), f"index of {name}: wrong owners"

    def _places(self, segment: Segment, ids: Sequence[int]) -> Iterator[tuple[_Table, _Place]]:
        """One for each of the segment's tokens."""
        size, space = self._block_size, segment.space
        chain = [_root(space), *self._hasher(ids[: segment.stop], size, space.fingerprint, space.salt)]
        for stop in range(segment.start + 1, segment.stop + 1):
            block, filled = divmod(stop, size)
            if filled:
                yield self._within, (chain[block], *ids[block * size : stop])
            else:
                yield self._ends, chain[block]


def path_ids(segment: Segment) -> tuple[int, ...]:
    """All token ids from token 0 to the segment's end."""
    ids: list[int] = []
    for step in segment.path():
        del ids[step.start :]  # a segment may begin within the one before
        ids += step.ids
    return tuple(ids)


def _holds(segment: Segment, ids: Sequence[int], num_tokens: int) -> bool:
    """Whether the path's first `num_tokens` tokens are those of `ids`."""
    stop, step = num_tokens, segment
    while True:
        if tuple(ids[step.start : stop]) != step.ids[: stop - step.start]:
            return False
        if step.parent is None:
            return True
        stop, step = step.start, step.parent


def _root(space: Space) -> bytes:
    return bytes.fromhex(digest(b"root", space.fingerprint.encode(), space.salt))
