"""What is made once for many requests is never older than it may be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cachestack.access import KeyStore
from cachestack.bodies.wishes import NONE
from cachestack.decisions import Layer, Outcome, Reason
from cachestack.entries import Entry, Selector
from cachestack.gateway.requesting import new_trace_id
from cachestack.gateway.told import ToldHeaders, joined, picked
from cachestack.keys import Partition
from cachestack.observers import Ended
from cachestack.observing.hit_lines import HitLines
from cachestack.observing.request_log import _encoded, line_of
from cachestack.requests import Message, Request
from cachestack.serving import Served as Hits
from cachestack.stores.base import NOT_NOW
from cachestack.stores.disk import DiskStore
from cachestack.tracing import TraceBuilder

HERE = Partition("acme")


def entry_of(exact: str, answer: str = "Because.") -> Entry:
    return Entry(
        f"id-{exact}", HERE, "contract", exact, "Why?", answer, "stop", 7, 3, "m-1", 100.0, 1e9, 1e9, engine_s=1.5
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    store = DiskStore(tmp_path)
    store.find_exact_at_once(HERE, "a")  # somebody asks so
    for exact in ("a", "b"):
        store.put(entry_of(exact))
    assert all(store.find_exact(HERE, exact) for exact in ("a", "b"))
    yield store
    store.close()


def test_one_look_serves_a_moment_and_no_more(store: DiskStore, tmp_path: Path) -> None:
    elsewhere, moment = DiskStore(tmp_path), object()
    assert store.find_exact_at_once(HERE, "a", moment) == entry_of("a")
    elsewhere.invalidate(Selector(tenant="acme"))
    assert store.find_exact_at_once(HERE, "b", moment) == entry_of("b"), "as of the moment's first look"
    assert store.find_exact_at_once(Partition("acme", user="ann"), "b", moment) is NOT_NOW
    for later in (object(), None):
        assert store.find_exact_at_once(HERE, "b", later) is NOT_NOW
    assert store.find_exact_at_once(HERE, "a", moment) is NOT_NOW, "what was seen to be gone stays gone"
    elsewhere.close()


def test_a_key_that_was_matched_is_looked_at_each_time(tmp_path: Path) -> None:
    now_s, ticks = 1000.0, 0.0
    store = KeyStore(tmp_path, clock=lambda: now_s, ticks=lambda: ticks, start=lambda work: work())
    short, _ = store.create("acme", expires_in_s=10)
    long, _ = store.create("acme", user="ann")
    assert store.principal_of(short) == store.principal_of(short)
    assert store.principal_of(f"{long[:-1]}{'x' if long[-1] != 'x' else 'y'}") is None
    first = store.principal_of(long)
    assert first is not None
    assert store.principal_of(long) is first
    store.raise_epoch("acme", user="ann")
    raised = store.principal_of(long)
    assert raised is not None
    assert raised.epoch > first.epoch
    now_s += 10
    assert store.principal_of(short) is None
    store.revoke(long)
    assert store.principal_of(long) is None
    other, _ = store.create("acme")
    assert store.principal_of(other)
    KeyStore(tmp_path).revoke(other)
    ticks += 1
    assert store.principal_of(other) is None, "revoked by another process"


@pytest.mark.parametrize("model", ["m-1", 'a "model" of 100% \\ %s %r', "mod\u00e8le"])
def test_a_hit_s_line_is_what_it_would_be(model: str) -> None:
    made: list[Ended] = []

    def counted(ended: Ended) -> dict[str, Any]:
        made.append(ended)
        return line_of(ended)

    lines, hits = HitLines(counted, _encoded), Hits(entry_of("a"), model)
    for number in range(5):
        response = hits.response(TraceBuilder(new_trace_id(), "acme"), 160.25 + number)
        request = Request((Message("user", "Why?"),), tenant="acme", model=model)
        ended = Ended(request, response.trace, response, None, 1000.0 + number / 7)
        raw = lines.line(ended)
        assert raw is not None
        assert raw.endswith(b"\n")
        assert json.loads(raw) == json.loads(_encoded(line_of(ended)))
    assert len(made) == 1
    other = TraceBuilder(new_trace_id(), "acme")
    other.add(Layer.POLICY, Outcome.DONE, Reason.POLICY_RESOLVED)
    assert lines.line(Ended(request, other.trace(), response, None, 1.0)) is None


def test_headers_are_known_by_all_that_is_read_in_them() -> None:
    told, plain = ToldHeaders(), [(b"host", b"x"), (b"x-api-key", b"k"), (b"traceparent", b"1")]
    known = told.keep(picked(plain), joined(picked(plain)), NONE)
    assert told.get(picked([*plain, (b"accept", b"*/*")])) is known
    for more in (b"cache-control", b"x-cachestack-tags", b"x-cachestack-ttl", b"openai-beta", b"anthropic-beta",
                 b"authorization", b"x-api-key"):  # fmt: skip
        assert told.get(picked([*plain, (more, b"y")])) is None
    long = [(b"x-cachestack-tags", b"y" * 5000)]
    told.keep(picked(long), {}, NONE)
    assert told.get(picked(long)) is None
    for number in range(2000):
        told.keep(picked([(b"x-cachestack-ttl", b"%d" % number)]), {}, NONE)
    assert len(told._known) <= 512
    assert joined([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]) == {"a": "1, 3", "b": "2"}


def test_ids_are_never_given_twice() -> None:
    assert len({new_trace_id() for _ in range(1000)}) == 1000
