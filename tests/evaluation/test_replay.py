"""A log asked again: counts worked out by hand, and decisions that are those of a real stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachestack.build import build_replay
from cachestack.evaluation.doubt import Doubt, Doubts
from cachestack.evaluation.log_file import BadLines
from cachestack.evaluation.log_rows import LoggedRequest, request_of
from cachestack.evaluation.replay import AT_ONCE, LogReport
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Message
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.index import FaissIndex
from cachestack.stack import CacheStack
from cachestack.stores.disk import DiskStore
from tests.evaluation.test_pairs import EchoEngine


def logged(*rows: Any) -> list[LoggedRequest]:
    return [request_of(row, f"log:{number}") for number, row in enumerate(rows, start=1)]


def replayed(
    requests: Iterable[LoggedRequest], policy: str = "{}", encoder: Any = None, bad: BadLines | None = None
) -> LogReport:
    replay = build_replay(encoder, PolicySet.parse(policy, "test policy"), max_pairs=50)
    return replay.run(requests, bad or BadLines())


def test_repeats_hit_within_their_time_to_live() -> None:
    report = replayed(
        logged(
            {"text": "a cat", "time": 0},
            {"text": " a cat", "time": 50},  # hit
            {"text": "a cat", "time": 150},  # expired: asked again, and kept again
            {"text": "a cat", "time": 200},  # hit
            {"text": "a dog", "time": 201},
            {"text": "a dog", "time": 190},  # out of order: as of 201; hit
            {"text": "a dog"},  # no time: as of 201; hit
        ),
        "default: {retention: {ttl_s: 100}}",
    )
    assert (report.num_requests, report.num_exact, report.num_by_meaning) == (7, 4, 0)
    assert report.num_repeats == 5
    assert report.decided == {"exact": 4, "no_encoder": 2, "expired": 1}
    assert (report.num_without_time, report.num_backwards, report.first_s, report.last_s) == (1, 1, 0, 201)
    assert report.hit_rate == 4 / 7


def test_walls_contracts_and_temperature_hold() -> None:
    system = [{"role": "system", "content": "Be brief."}]
    asked = {"role": "user", "content": "a cat"}
    report = replayed(
        logged(
            {"messages": [asked]},
            {"messages": [asked], "tenant": "acme"},
            {"messages": [*system, asked]},
            {"messages": [asked], "model": "other"},
            {"messages": [asked], "temperature": 1.0},
            {"messages": [asked], "tenant": "acme"},  # hit
        )
    )
    assert (report.num_requests, report.num_hits, len(report.tenants)) == (6, 1, 2)
    assert report.decided == {"no_encoder": 4, "temperature": 1, "exact": 1}
    assert report.num_repeats == 1


def test_what_is_saved_is_the_price_of_the_hits() -> None:
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 500_000}
    report = replayed(
        logged({"text": "a cat", "usage": usage}, {"text": "a cat", "usage": usage}, {"text": "a cat"}),
        "default: {prices: {input_per_million: 2.0, output_per_million: 4.0, currency: EUR}}",
    )
    assert list(report.costs) == ["EUR"]
    assert report.costs["EUR"].saved == pytest.approx(4 + 2 * 2 / 1e6)
    assert report.costs["EUR"].all == pytest.approx(8 + 2 * 2 / 1e6)
    assert report.num_estimated == 1
    assert not replayed(logged({"text": "a cat"})).costs


def test_a_tenant_that_the_policy_refuses_is_a_bad_line() -> None:
    bad = BadLines()
    policy = "{unknown_tenants: refuse, tenants: {acme: {}}}"
    report = replayed(logged({"text": "a", "tenant": "acme"}, {"text": "a", "tenant": "gamma"}), policy, bad=bad)
    assert (report.num_requests, bad.num_lines) == (1, 1)
    assert bad.named[0].startswith("log:2: tenant 'gamma'")


def test_ctrl_c_keeps_what_was_found() -> None:
    def interrupted() -> Iterator[LoggedRequest]:
        yield from logged(*["a cat"] * (AT_ONCE + 10))
        raise KeyboardInterrupt

    report = replayed(interrupted())
    assert report.is_interrupted
    assert (report.num_requests, report.num_exact) == (AT_ONCE, AT_ONCE - 1)


QUESTIONS = [
    "How do I renew my visa?",
    "how do i renew my visa",
    "How do I cancel my visa?",
    "How do I renew my visa?",
    "What do dormice eat?",
    "Convert 100 USD to EUR",
    "Convert 250 USD to EUR",
    "Convert $100 to EUR",
    "Where can I buy a ticket?",
    "Where can I purchase a ticket?",
    "Where can I purchase a ticket?",
    "Comment renouveler mon visa ?",
    "Comment renouveler mon visa ?",
    "word " * 300,
]


@pytest.fixture(scope="module")
def encoder(encoder_path: Path) -> SentenceEncoder:
    return SentenceEncoder(str(encoder_path))


def test_decisions_are_those_of_a_real_stack(tmp_path: Path, encoder: SentenceEncoder) -> None:
    """The same questions, asked one after the other of a CacheStack on disk that embeds each by itself."""
    report = replayed(logged(*QUESTIONS), encoder=encoder)
    store = DiskStore(tmp_path)
    prefix = PrefixLayer(BlockPool(max_bytes=0), secret=b"test")
    served: list[str] = []
    with CacheStack(engines={}, store=store, index=FaissIndex(store), encoder=encoder, prefix=prefix) as stack:
        for request in logged(*QUESTIONS):
            served.append(stack.respond(request.request, EchoEngine()).trace.served_from)
    assert report.num_exact == served.count("exact") >= 2
    assert report.num_by_meaning == served.count("semantic")
    assert report.num_requests == len(QUESTIONS)
    pairs = {(pair.a[-1].content, pair.b[-1].content): pair for pair in report.pairs}
    numbers = pairs["Convert 100 USD to EUR", "Convert 250 USD to EUR"]
    assert (numbers.served, numbers.guard, numbers.certain) == (False, "numbers", True)
    assert (numbers.place_a, numbers.place_b) == ("log:6", "log:7")
    assert [pair.margin for pair in report.pairs] == sorted(pair.margin for pair in report.pairs)


def doubt(margin: float, text: str = "b") -> Doubt:
    a, b = (Message("user", "a"),), (Message("user", text),)
    return Doubt(margin, a, b, True, "band:accept", 0.9, None, 0.9, None, False, "log:1", "log:2", "default")


def test_the_nearest_are_kept_each_once_and_in_bounded_memory() -> None:
    doubts = Doubts(10)
    for number in range(1000):
        doubts.add(doubt(abs(500 - number) / 1000, f"b {number}"))
        assert len(doubts._found) <= 40
    doubts.add(doubt(0.0, "b 500"))
    found = doubts.nearest()
    assert {pair.b[0].content for pair in found} >= {f"b {number}" for number in range(496, 505)}
    assert (len(found), found[0].b[0].content, found[0].times) == (10, "b 500", 2)
