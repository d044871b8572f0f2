"""The answer to a scrape: valid, complete, bounded, and never less than before."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cachestack.errors import StoreError, UsageError
from cachestack.observing.exposition import StackCollector, exposition
from cachestack.observing.metrics import BUCKETS_S, COUNTERS, GAUGES, HISTOGRAMS, OWN_COUNTERS, OWN_GAUGES
from cachestack.stats import Stats
from cachestack.stores.base import StoreSize
from cachestack.stores.sums import SumsFile

ROOT = Path(__file__).parents[2]
PRICED = "default: {prices: {input_per_million: 2.0, output_per_million: 10.0, currency: EUR}}"


def samples(stack_or_collector, **options):
    """Value by metric and labels; fails on what the format does not allow, and on a series given twice."""
    if isinstance(stack_or_collector, StackCollector):
        families = list(stack_or_collector.collect())
    else:
        families = list(text_string_to_metric_families(exposition(stack_or_collector, **options)[0].decode()))
    found = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(found, name, **labels):
    return found[name, frozenset(labels.items())]


def is_counter(name: str) -> bool:
    return name.endswith(("_total", "_bucket", "_count", "_sum"))


def test_what_requests_count(make_stack, engine):
    stack = make_stack(PRICED)
    for question in ("Hello", "Hello", "Hello", "Other"):
        stack.chat(question, tenant="acme")
    engine.error = RuntimeError("no")
    with pytest.raises(RuntimeError):
        stack.chat("Another", tenant="acme")
    found = samples(stack)
    requests = {
        source: value(found, "cachestack_requests_total", tenant="acme", served_from=source)
        for source in ("exact", "semantic", "stale", "engine", "failed", "cancelled")
    }
    assert requests == {"exact": 2, "semantic": 0, "stale": 0, "engine": 2, "failed": 1, "cancelled": 0}
    assert value(
        found, "cachestack_lookups_total", tenant="acme", layer="semantic", outcome="hit", reason="exact"
    ) == 2  # fmt: skip
    assert value(found, "cachestack_fallbacks_total", tenant="acme", reason="retried") == 1
    assert value(found, "cachestack_engine_errors_total", tenant="acme") == 2
    assert value(found, "cachestack_tokens_total", tenant="acme", kind="prefilled") == 120
    assert value(found, "cachestack_saved_tokens_total", tenant="acme", layer="semantic") == 222
    assert value(found, "cachestack_saved_tokens_total", tenant="acme", layer="prefix") == 80
    assert value(found, "cachestack_saved_seconds_total", tenant="acme") == pytest.approx(2.4)
    assert value(found, "cachestack_cost_total", tenant="acme", currency="EUR") == pytest.approx(2 * 310e-6)
    assert value(found, "cachestack_saved_cost_total", tenant="acme", currency="EUR") == pytest.approx(2 * 310e-6)
    assert value(found, "cachestack_entries", tenant="acme") == 2
    assert value(found, "cachestack_entry_bytes", tenant="acme") > 3000
    assert value(found, "cachestack_store_readable") == 1
    assert value(found, "cachestack_kv_max_bytes") == 1024 * 1024


def test_histograms_are_cumulative_and_end_with_all(make_stack):
    stack = make_stack()
    stack.chat("Hello", tenant="acme")
    found = samples(stack)
    name, labels = "cachestack_time_to_first_token_seconds", {"tenant": "acme"}
    counts = [value(found, f"{name}_bucket", le=str(limit), **labels) for limit in BUCKETS_S]
    assert counts == sorted(counts)
    assert next(limit for limit, count in zip(BUCKETS_S, counts, strict=True) if count) == 0.25, "0.2 s"
    assert value(found, f"{name}_bucket", le="+Inf", **labels) == value(found, f"{name}_count", **labels) == 1
    assert value(found, f"{name}_sum", **labels) == pytest.approx(0.2)
    assert value(found, "cachestack_request_seconds_count", tenant="acme", served_from="engine") == 1


def test_names_and_types_follow_the_conventions(make_stack):
    stack = make_stack()
    stack.chat("Hello")
    text = exposition(stack)[0].decode()
    types = dict(re.findall(r"# TYPE (\S+) (\S+)", text))
    assert set(types.values()) == {"counter", "gauge", "histogram"}
    for name, kind in types.items():
        assert re.fullmatch(r"cachestack_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter"), name
        assert kind != "histogram" or name.endswith("_seconds")
    described = {**COUNTERS, **HISTOGRAMS, **GAUGES, **OWN_GAUGES, **OWN_COUNTERS}
    assert set(types) <= {*described, "cachestack_build_info"}
    assert set(described) - set(types) == {name for name in described if "_index_" in name}, "there is no index here"


def test_openmetrics_where_the_scraper_asks_for_it(make_stack):
    stack = make_stack()
    stack.chat("Hello")
    body, content_type = exposition(stack, accept="application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    assert exposition(stack)[1].startswith("text/plain; version=0.0.4")


def test_tenants_beyond_the_limit_are_counted_together_for_good(make_stack):
    stack = make_stack()
    for tenant, times in (("a", 1), ("b", 3), ("c", 2)):
        for _ in range(times):
            stack.chat("Hello", tenant=tenant)
    collector = StackCollector(stack, max_tenants=2, sizes_every_s=0.0)
    found = samples(collector)
    assert tenants_in(found) == {"b", "c", "other"}
    for _ in range(9):
        stack.chat("Hello", tenant="a")
    stack.chat("Hello", tenant="d")
    later = samples(collector)
    assert tenants_in(later) == {"b", "c", "other"}, "who has a name keeps it; who comes late has none"
    assert value(later, "cachestack_requests_total", tenant="other", served_from="exact") == 9
    assert value(later, "cachestack_requests_total", tenant="other", served_from="engine") == 2
    assert value(later, "cachestack_entries", tenant="b") == 1
    assert ("cachestack_entries", frozenset({("tenant", "other")})) not in later, "that would be a look into each file"
    for key, before in found.items():
        assert not is_counter(key[0]) or later[key] >= before, key
    with pytest.raises(UsageError):
        StackCollector(stack, max_tenants=-1)


def tenants_in(found):
    return {dict(labels)["tenant"] for _, labels in found if "tenant" in dict(labels)}


@pytest.mark.parametrize("tenant", ["other", 'say "hi"\n\\', "été", "half \ud800"])
def test_any_name_is_a_label(make_stack, tenant):
    stack = make_stack()
    stack.chat("Hello", tenant=tenant)
    shown = tenant.encode("utf-8", "backslashreplace").decode()
    found = samples(stack)
    assert value(found, "cachestack_requests_total", tenant=shown, served_from="engine") == 1


def test_reasons_are_a_closed_list(make_stack):
    stack = make_stack()
    stack._stats.count("acme", semantic__miss__from_the_future=3)
    found = samples(stack)
    labels = {"tenant": "acme", "layer": "semantic", "outcome": "miss", "reason": "unknown"}
    assert value(found, "cachestack_lookups_total", **labels) == 3


class Record:
    """A shared record that can be made to fail."""

    def __init__(self) -> None:
        self.sums, self.fails_to_read, self.fails_to_write = {}, False, False

    def add(self, sums):
        if self.fails_to_write:
            raise StoreError("full")
        for tenant, new in sums.items():
            kept = self.sums.setdefault(tenant, {})
            for name, number in new.items():
                kept[name] = kept.get(name, 0) + number

    def read(self):
        if self.fails_to_read:
            raise StoreError("locked")
        return {tenant: dict(sums) for tenant, sums in self.sums.items()}

    def close(self) -> None: ...


def test_counters_do_not_go_down_while_the_record_fails(make_stack):
    record = Record()
    stack = make_stack(stats=Stats(record, flush_every_s=1e9))
    counted = []
    for reads, writes in ((True, True), (False, True), (False, False), (True, False), (False, True), (True, True)):
        stack.chat("Hello")
        record.fails_to_read, record.fails_to_write = not reads, not writes
        counted.append(stack.stats().by_tenant["default"].requests)
    assert counted == [1, 2, 3, 4, 5, 6]


def test_another_process_never_shows_less_than_this_one(make_stack):
    """A scrape may reach one worker after the other: what one has shown, the other finds in the record."""
    record = Record()

    class Busy(Record):
        def read(self):
            first.count("t", requests=1)  # counted while the snapshot is taken
            return record.read()

        def add(self, sums):
            record.add(sums)

    first, second = Stats(Busy(), flush_every_s=1e9), Stats(record, flush_every_s=1e9)
    first.count("t", requests=1)
    shown = first.snapshot().by_tenant["t"].requests
    assert second.snapshot().by_tenant["t"].requests >= shown == 1


def test_a_store_that_fails_leaves_its_gauges_out(make_stack):
    stack = make_stack()
    stack.chat("Hello")
    stack.performer.store.close()
    found = samples(stack)
    assert value(found, "cachestack_store_readable") == 0
    assert not any(name == "cachestack_entries" for name, _ in found)
    assert value(found, "cachestack_requests_total", tenant="default", served_from="engine") == 1


def test_sizes_are_read_now_and_then(make_stack):
    stack, now = make_stack(), [0.0]
    collector = StackCollector(stack, sizes_every_s=15.0, clock=lambda: now[0])
    stack.chat("Hello")
    assert value(samples(collector), "cachestack_entries", tenant="default") == 1
    stack.chat("Other")
    assert value(samples(collector), "cachestack_entries", tenant="default") == 1
    now[0] = 15.0
    assert value(samples(collector), "cachestack_entries", tenant="default") == 2


def test_a_scrape_does_not_wait_for_many_sizes(make_stack):
    """A look takes 0.15 s here: two fit into one scrape, and the others have their turn in the next."""
    stack, now = make_stack(), [0.0]
    for tenant in "abcd":
        stack.chat("Hello", tenant=tenant)

    class Slow:
        num_corrupt = 0

        def size(self, tenant):
            now[0] += 0.15
            return StoreSize(1, 1)

    stack.performer.store, real = Slow(), stack.performer.store
    collector = StackCollector(stack, sizes_every_s=15.0, clock=lambda: now[0])
    looked = [sum(name == "cachestack_entries" for name, _ in samples(collector)) for _ in range(3)]
    stack.performer.store = real
    assert looked == [2, 4, 4]


def queries(node):
    if isinstance(node, dict):
        for key, inner in node.items():
            if key in ("expr", "query") and isinstance(inner, str):
                yield inner
            else:
                yield from queries(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from queries(inner)


def test_the_dashboard_asks_only_for_metrics_and_labels_that_exist():
    dashboard = json.loads((ROOT / "deploy/grafana/cachestack.json").read_text(encoding="utf-8"))
    described = {**{n: ("tenant", *d.labels) for n, d in {**COUNTERS, **GAUGES}.items()}}
    described |= {name: () for name in {**OWN_GAUGES, **OWN_COUNTERS}} | {"cachestack_build_info": ("version",)}
    for name, d in HISTOGRAMS.items():
        described |= {f"{name}{end}": ("tenant", "le", *d.labels) for end in ("_bucket", "_sum", "_count")}
    found = list(queries(dashboard))
    assert len(found) > 10
    for query in found:
        for name, matchers in re.findall(r"(cachestack_\w+)(?:\{([^}]*)\})?", query):
            assert name in described, query
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
                assert label in {*described[name], "job", "instance"}, query
        for labels in re.findall(r"by \(([^)]*)\)", query):
            known = {label for name in re.findall(r"cachestack_\w+", query) for label in described[name]}
            assert {label.strip() for label in labels.split(",")} <= {*known, "job", "instance"}, query
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_counters_do_not_go_down_while_threads_count(tmp_path):
    """Two processes' worth of statistics on one record, scraped in turn while both count and flush."""
    kept = [Stats(SumsFile(tmp_path / "stats"), flush_every_s=0.0) for _ in range(2)]
    barrier = threading.Barrier(5)

    def count(stats: Stats) -> None:
        barrier.wait()
        for _ in range(100):
            stats.count("t", requests=1, tokens__reused=2)

    threads = [threading.Thread(target=count, args=(kept[n % 2],)) for n in range(4)]
    for thread in threads:
        thread.start()
    barrier.wait()
    seen = []
    while any(thread.is_alive() for thread in threads):
        seen += [stats.snapshot().by_tenant.get("t") for stats in kept]
    for thread in threads:
        thread.join()
    seen += [stats.snapshot().by_tenant.get("t") for stats in (*kept, *kept)]
    counted = [0 if stats is None else stats.requests for stats in seen]
    assert counted == sorted(counted)
    assert counted[-1] == 400
    assert all(stats is None or stats.tokens_reused == 2 * stats.requests for stats in seen)
    for stats in kept:
        stats.close()
