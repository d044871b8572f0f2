"""Segments of kept KV and the index that finds them by block hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cachestack.engines.base import KVRun
from cachestack.keys import digest
from cachestack.prefix.base import Label, Space

Hasher = Callable[[Sequence[int], int, str, bytes], Iterator[bytes]]


@dataclass(slots=True, eq=False)
class Segment:
    """One kept run with its token ids. `num_readers` counts leases of paths through it."""

    run: KVRun
    ids: tuple[int, ...]
    space: Space
    label: Label
    parent: Segment | None = None
    num_children: int = 0
    num_readers: int = 0
    is_removed: bool = False

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
    """Segments by the hashes of the blocks they touch.

    `_ends[h]`: owners of the last token of the full block whose chained hash is h. The chain can be walked block by
    block: no segment is there without those before it.
    `_after[h]`: owners of any token in the block that follows h, full or not. They decide where a match ends within
    that block.
    """

    def __init__(self, block_size: int, hasher: Hasher) -> None:
        self._block_size = block_size
        self._hasher = hasher
        self._ends: dict[bytes, dict[Segment, None]] = {}
        self._after: dict[bytes, dict[Segment, None]] = {}

    def longest(self, ids: Sequence[int], max_tokens: int, space: Space) -> Found | None:
        """The longest known beginning of `ids[:max_tokens]`, its token ids compared one by one."""
        size = self._block_size
        hashes = [_root(space)]
        for block_hash in self._hasher(ids[:max_tokens], size, space.fingerprint, space.salt):
            if block_hash not in self._ends:
                break
            hashes.append(block_hash)
        for num_blocks in range(len(hashes) - 1, -1, -1):  # further down only where hashes lied
            before = num_blocks * size
            limit = min(max_tokens, before + size)
            ends = [(self._agreed(s, ids, before, limit), s) for s in self._after.get(hashes[num_blocks], ())]
            ends += [(before, s) for s in self._ends.get(hashes[num_blocks], ())]
            for num_tokens, segment in sorted(ends, key=lambda end: -end[0]):
                if num_tokens > segment.start and _holds(segment, ids, num_tokens):
                    return Found(segment, num_tokens)
        return None

    def add(self, segment: Segment, ids: Sequence[int]) -> None:
        """`ids`: the whole path's, at least up to the segment's end."""
        for table, block_hash in self._places(segment, ids):
            table.setdefault(block_hash, {})[segment] = None

    def remove(self, segment: Segment) -> None:
        for table, block_hash in self._places(segment, path_ids(segment)):
            owners = table[block_hash]
            del owners[segment]
            if not owners:
                del table[block_hash]

    def check(self, segments: Iterable[Segment]) -> None:
        """Raises AssertionError unless exactly `segments` are in the index, each in all its places."""
        expected = SegmentIndex(self._block_size, self._hasher)
        for segment in segments:
            expected.add(segment, path_ids(segment))
        for ours, theirs, name in (
            (self._ends, expected._ends, "block ends"),
            (self._after, expected._after, "blocks touched"),
        ):
            assert ours.keys() == theirs.keys(), f"index of {name}: {len(ours)} hashes, {len(theirs)} expected"
            for block_hash, owners in theirs.items():
                assert ours[block_hash].keys() == owners.keys(), f"index of {name}: wrong owners of a block"

    def _places(self, segment: Segment, ids: Sequence[int]) -> Iterator[tuple[dict[bytes, dict[Segment, None]], bytes]]:
        size, space = self._block_size, segment.space
        chain = [_root(space), *self._hasher(ids[: segment.stop], size, space.fingerprint, space.salt)]
        for block in range(segment.start // size, (segment.stop - 1) // size + 1):
            yield self._after, chain[block]
            if (block + 1) * size <= segment.stop:
                yield self._ends, chain[block + 1]

    def _agreed(self, segment: Segment, ids: Sequence[int], before: int, limit: int) -> int:
        """How many tokens of `ids` agree with the segment's path, known to agree up to `before`."""
        at = before
        for token in _path_from(segment, before):
            if at >= limit or ids[at] != token:
                break
            at += 1
        return at


def path_ids(segment: Segment) -> tuple[int, ...]:
    """All token ids from token 0 to the segment's end."""
    return tuple(_path_from(segment, 0))


def _path_from(segment: Segment, position: int) -> Iterator[int]:
    """Token ids on the segment's path from `position` on."""
    if segment.parent is not None and position < segment.start:
        for at, token in enumerate(_path_from(segment.parent, position), position):
            if at >= segment.start:
                break
            yield token
    yield from segment.ids[max(0, position - segment.start) :]


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
