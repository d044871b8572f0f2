"""A stack's statistics in the Prometheus text format. Needs prometheus-client (extra `gateway`)."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cachestack import __version__
from cachestack.errors import MissingExtra, StoreError, UnknownTenant, UsageError
from cachestack.histogram import Histogram
from cachestack.observing.metrics import (
    BUCKETS_S,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    OTHER,
    OWN_COUNTERS,
    OWN_GAUGES,
    UNKNOWN,
    Described,
    Labels,
    counters_of,
    histograms_of,
)
from cachestack.snapshot import TenantStats

try:
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError:
    raise MissingExtra("prometheus-client", "gateway") from None

if TYPE_CHECKING:
    from cachestack.stack import CacheStack
    from cachestack.stores.base import StoreSize

MAX_TENANTS = 50
SIZES_EVERY_S = 15.0
SIZES_FOR_S = 0.2
_PREFIX = "cachestack_"


class StackCollector(Collector):
    """A custom collector for one stack; `registry.register(StackCollector(stack))` adds it to a registry of yours.

    `max_tenants` have a label value of their own: the busiest at the first call, then whoever comes while there is
    room; it stays theirs. All others are counted together as `other`, so that no counter goes down.

    Sizes of the store, of the tenants with a name, are a look into a file each: one is read anew when it is
    `sizes_every_s` old, and a scrape reads no more of them, the oldest first, after `SIZES_FOR_S` seconds.
    """

    def __init__(
        self,
        stack: CacheStack,
        *,
        max_tenants: int = MAX_TENANTS,
        sizes_every_s: float = SIZES_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_tenants < 0:
            raise UsageError(f"max_tenants must be 0 or more, not {max_tenants}")
        self._stack = stack
        self.max_tenants = max_tenants
        self._sizes_every_s = sizes_every_s
        self._clock = clock
        self._lock = threading.Lock()  # guards those below
        self._named: dict[str, None] = {}
        self._sizes: dict[str, tuple[float, StoreSize]] = {}  # by tenant, with the time of the look
        self._is_readable = True

    def collect(self) -> Iterator[Metric]:
        snapshot, kv = self._stack.stats(), self._stack.memory()
        busiest = sorted(snapshot.by_tenant, key=lambda name: (-snapshot.by_tenant[name].requests, name))
        self._name(busiest)
        yield from self._tenants(snapshot.by_tenant.items())
        sums: Counter[tuple[str, Labels]] = Counter()
        for group in kv.groups:
            sums["cachestack_kv_bytes", (self._label(group.tenant),)] += group.num_bytes
            sums["cachestack_kv_tokens", (self._label(group.tenant),)] += group.num_tokens
        is_readable, sizes = self._store_sizes()
        for tenant, size in sizes.items():
            sums["cachestack_entries", (self._label(tenant),)] += size.num_entries
            sums["cachestack_entry_bytes", (self._label(tenant),)] += size.num_bytes
        for tenant, classes in snapshot.budgets.items():
            if tenant not in self._named:
                continue  # states of several tenants can't be added up
            for of_class, report in classes.items():
                labels = (self._label(tenant), of_class)
                sums["cachestack_budget_state", (*labels, report.state)] += 1
                sums["cachestack_budget_threshold", labels] += report.threshold or 2  # type: ignore[assignment]
                sums["cachestack_budget_wrong_rate_low", labels] += report.interval[0]  # type: ignore[assignment]
                sums["cachestack_budget_wrong_rate_high", labels] += report.interval[1]  # type: ignore[assignment]
        for name, described in GAUGES.items():
            yield _filled(GaugeMetricFamily, name, described, sums)
        own: dict[str, float] = {
            "store_readable": is_readable,
            "kv_max_bytes": kv.max_bytes,
            "kv_pinned_bytes": kv.num_pinned_bytes,
            "kv_leased_segments": kv.num_leased,
            "kv_evictions_total": kv.num_evicted,
            "corrupt_entries_total": self._stack.performer.store.num_corrupt,
        }
        if (index := snapshot.index) is not None:
            own |= {
                "index_vectors": index.num_vectors,
                "index_graph_vectors": index.num_in_graphs,
                "index_groups": index.num_groups,
                "index_tombstones": index.num_tombstones,
                "index_bytes": index.num_bytes,
                "index_builds_total": index.num_builds,
                "index_loads_total": index.num_loads,
            }
        for name, value in own.items():
            full = _PREFIX + name
            if full in OWN_COUNTERS:
                yield CounterMetricFamily(full, OWN_COUNTERS[full], value=value)
            else:
                yield GaugeMetricFamily(full, OWN_GAUGES[full], value=value)
        build = GaugeMetricFamily("cachestack_build_info", "The version that runs.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build

    def _tenants(self, tenants: Iterable[tuple[str, TenantStats]]) -> Iterator[Metric]:
        sums: Counter[tuple[str, Labels]] = Counter()
        buckets: defaultdict[tuple[str, Labels], Counter[int]] = defaultdict(Counter)
        totals: Counter[tuple[str, Labels]] = Counter()
        for tenant, stats in tenants:
            label = self._label(tenant)
            for name, labels, value in counters_of(stats, self._currency(tenant)):
                sums[name, (label, *labels)] += value  # type: ignore[assignment]
            for name, labels, histogram in histograms_of(stats):
                buckets[name, (label, *labels)].update(histogram.counts)
                totals[name, (label, *labels)] += histogram.total  # type: ignore[assignment]
        for name, described in COUNTERS.items():
            yield _filled(CounterMetricFamily, name, described, sums)
        for name, described in HISTOGRAMS.items():
            family = HistogramMetricFamily(name, described.text, labels=("tenant", *described.labels))
            for (of, labels), counts in buckets.items():
                if of == name and counts:
                    merged = Histogram(counts, totals[of, labels])
                    cumulated = [(str(limit), float(merged.at_most(limit))) for limit in BUCKETS_S]
                    family.add_metric(labels, [*cumulated, ("+Inf", float(merged.num_values))], merged.total)
            yield family

    def _name(self, tenants: Iterable[str]) -> None:
        with self._lock:
            for tenant in tenants:
                if len(self._named) >= self.max_tenants:
                    return
                if tenant != OTHER:
                    self._named[tenant] = None

    def _label(self, tenant: str) -> str:
        return tenant.encode("utf-8", "backslashreplace").decode() if tenant in self._named else OTHER

    def _currency(self, tenant: str) -> str:
        try:
            return self._stack.policies.policy(tenant).prices.currency
        except UnknownTenant:
            return UNKNOWN

    def _store_sizes(self) -> tuple[bool, dict[str, StoreSize]]:
        """Whether the store could be read, and the size of each tenant that has a name."""
        with self._lock:
            begin_s, store = self._clock(), self._stack.performer.store
            due = [t for t in self._named if begin_s - self._looked_at_s(t) >= self._sizes_every_s]
            for tenant in sorted(due, key=self._looked_at_s):
                if (now_s := self._clock()) - begin_s > SIZES_FOR_S:
                    break
                try:
                    self._sizes[tenant] = (now_s, store.size(tenant))
                    self._is_readable = True
                except StoreError:
                    self._sizes.clear()
                    self._is_readable = False
                    break
            return self._is_readable, {tenant: size for tenant, (_, size) in self._sizes.items()}

    def _looked_at_s(self, tenant: str) -> float:
        return self._sizes[tenant][0] if tenant in self._sizes else -math.inf


def _filled(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    described: Described,
    sums: Counter[tuple[str, Labels]],
) -> Metric:
    family = kind(name, described.text, labels=("tenant", *described.labels))
    for (of, labels), value in sums.items():
        if of == name:
            family.add_metric(labels, value)
    return family


_collectors: WeakKeyDictionary[CacheStack, StackCollector] = WeakKeyDictionary()
_collectors_lock = threading.Lock()


def exposition(stack: CacheStack, *, accept: str = "", max_tenants: int = MAX_TENANTS) -> tuple[bytes, str]:
    """The body and the content type of an answer to a scrape. `accept`: the scraper's header of that name.

    `max_tenants` counts at the first call for a stack; see StackCollector.
    """
    with _collectors_lock:
        collector = _collectors.get(stack)
        if collector is None:
            collector = _collectors[stack] = StackCollector(stack, max_tenants=max_tenants)
    encode, content_type = choose_encoder(accept)
    return encode(collector), content_type
