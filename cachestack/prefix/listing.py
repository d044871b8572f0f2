"""The kept segments as figures to show, and their tree checked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from cachestack.prefix.base import UNKNOWN_S_PER_TOKEN, PoolPrefix, PoolSize, PoolSizes
from cachestack.prefix.segments import Segment

MAX_PREFIXES = 50


def sizes_of(segments: Iterable[Segment], pinned_s: Mapping[Segment, float], now_s: float) -> PoolSizes:
    """What the segments hold, by group and by prefix. The pool's own figures are for the pool to add."""
    groups: defaultdict[tuple[str, str, str], list[Segment]] = defaultdict(list)
    for segment in segments:
        groups[(segment.label.model, segment.label.dtype, segment.label.tenant)].append(segment)
    sizes = tuple(
        PoolSize(*key, len(of), sum(s.run.num_tokens for s in of), sum(s.num_bytes for s in of))
        for key, of in sorted(groups.items())
    )
    return PoolSizes(
        groups=sizes,
        max_bytes=0,
        num_bytes=0,
        num_tokens=sum(size.num_tokens for size in sizes),
        num_segments=sum(size.num_segments for size in sizes),
        num_leased=0,
        num_evicted=0,
        prefixes=_prefixes(segments, pinned_s, now_s),
    )


def check_tree(segments: Iterable[Segment]) -> None:
    """Raises AssertionError unless segments form trees, parents first, each with its principals among its parent's."""
    children: Counter[Segment] = Counter(s.parent for s in segments if s.parent is not None)
    seen: set[Segment] = set()
    for segment in segments:
        parent = segment.parent
        assert not segment.is_removed, "a removed segment can still be found"
        assert len(segment.ids) == segment.run.num_tokens > 0, "a segment's ids and run differ in length"
        assert segment.num_children == children[segment], "children miscounted"
        assert segment.principals.furthest == segment.stop, "nobody's tokens are kept, or nobody's kept tokens counted"
        if parent is None:
            assert segment.start == 0, "a path does not begin at token 0"
        else:
            assert parent in seen, "a segment outlived its parent"
            assert parent.space == segment.space, "a path crosses models or tenants"
            assert parent.label.tenant == segment.label.tenant, "a path is counted for two tenants"
            assert parent.start < segment.start <= parent.stop, "a segment does not begin on its parent"
            assert parent.num_readers >= segment.num_readers, "a path is leased without its beginning"
            assert parent.principals.covers(segment.principals, segment.start), "a principal of a child only"
        seen.add(segment)


def _prefixes(segments: Iterable[Segment], pinned_s: Mapping[Segment, float], now_s: float) -> tuple[PoolPrefix, ...]:
    """Roots, places where prompts part ways, and what is used, pinned or read; what has saved most first."""
    shown = [s for s in segments if s.parent is None or s.num_children > 1 or s.num_uses or s.is_held]
    shown.sort(key=lambda s: (s in pinned_s, s.num_uses * _worth(s), s.stop), reverse=True)
    return tuple(_prefix(segment, pinned_s.get(segment, 0.0), now_s) for segment in shown[:MAX_PREFIXES])


def _prefix(segment: Segment, pinned_s: float, now_s: float) -> PoolPrefix:
    return PoolPrefix(
        tenant=segment.label.tenant,
        model=segment.label.model,
        num_tokens=segment.stop,
        num_own_tokens=segment.run.num_tokens,
        num_bytes=sum(step.num_bytes for step in segment.path()),
        num_uses=segment.num_uses,
        idle_s=max(0.0, now_s - segment.used_s),
        saved_s=segment.cost(0, segment.stop),
        pinned_for_s=pinned_s,
        num_users=segment.principals.num_users,
        is_leased=segment.num_readers > 0,
    )


def _worth(segment: Segment) -> float:
    return segment.saved_s or UNKNOWN_S_PER_TOKEN * segment.run.num_tokens
