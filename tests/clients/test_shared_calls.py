"""Identical calls at once share one, streamed or not, and nothing that is more than text is lost on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from openai import OpenAI

from cachestack.flights import Flights
from cachestack.semantic.budget.budgets import AtOnce
from tests.upstream.calls import Call, Gate
from tests.upstream.server import Upstream

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

QUESTION: list[Any] = [{"role": "user", "content": "How do I reset my password?"}]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released each time a request has taken its place among those under way."""
    places, join = threading.Semaphore(0), Flights.join

    def noted(self: Flights, *args: Any, **kwargs: Any) -> Any:
        place = join(self, *args, **kwargs)
        places.release()
        return place

    monkeypatch.setattr(Flights, "join", noted)
    return places


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def call(client: OpenAI, streams: bool) -> list[dict[str, Any]]:
    """What was said, in one shape: the message's content, refusal and finish reason."""
    made: Any = client.chat.completions.create(model="m", messages=QUESTION, stream=streams)
    if not streams:
        choice = made.choices[0]
        return [{"text": choice.message.content, "refusal": choice.message.refusal, "finish": choice.finish_reason}]
    chunks = [chunk.choices[0] for chunk in made if chunk.choices]
    return [
        {
            "text": "".join(chunk.delta.content or "" for chunk in chunks),
            "refusal": "".join(chunk.delta.refusal or "" for chunk in chunks) or None,
            "finish": [chunk.finish_reason for chunk in chunks if chunk.finish_reason][-1],
        }
    ]


@pytest.mark.parametrize("follows", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("leads", [False, True], ids=["whole", "streamed"])
def test_text_is_shared(
    stack: CacheStack,
    openai: OpenAI,
    upstream: Upstream,
    joined: threading.Semaphore,
    pool: ThreadPoolExecutor,
    leads: bool,
    follows: bool,
) -> None:
    gate = Gate()
    upstream.script(Call(before=gate))
    client = stack.wrap_client(openai, tenant="acme")
    running: list[Future[Any]] = []
    for streams in (leads, follows, follows):
        running.append(pool.submit(call, client, streams))
        assert joined.acquire(timeout=20)
    gate.open()
    expected = [{"text": "Answer 1: How do I reset my password?", "refusal": None, "finish": "stop"}]
    assert [future.result(20) for future in running] == [expected] * 3
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("follows", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("leads", [False, True], ids=["whole", "streamed"])
def test_a_refusal_reaches_everybody_as_one(
    stack: CacheStack,
    openai: OpenAI,
    upstream: Upstream,
    joined: threading.Semaphore,
    pool: ThreadPoolExecutor,
    leads: bool,
    follows: bool,
) -> None:
    gate = Gate()
    upstream.script(Call(text="", refusal="I must not.", before=gate), Call(text="", refusal="I must not."))
    client = stack.wrap_client(openai, tenant="acme")
    leading = pool.submit(call, client, leads)
    assert joined.acquire(timeout=20)
    following = pool.submit(call, client, follows)
    assert joined.acquire(timeout=20)
    gate.open()
    said = [future.result(20)[0] for future in (leading, following)]
    assert [one["refusal"] for one in said] == ["I must not."] * 2
    assert len({one["finish"] for one in said}) == 1
    assert stack.performer.store.size().num_entries == 0


def test_tenants_do_not_share_a_call(
    stack: CacheStack, openai: OpenAI, upstream: Upstream, joined: threading.Semaphore, pool: ThreadPoolExecutor
) -> None:
    gate, other = Gate(), Gate()
    upstream.script(Call(before=gate), Call(before=other))
    running = []
    for tenant, at in (("acme", gate), ("other", other)):
        running.append(pool.submit(call, stack.wrap_client(openai, tenant=tenant), False))
        at.wait_reached()
    gate.open()
    other.open()
    assert len({future.result(20)[0]["text"] for future in running}) == 2


@pytest.mark.parametrize("streams", [False, True])
def test_a_call_in_the_background_gives_nothing_to_the_clients_own(
    make_stack: Any, openai: OpenAI, upstream: Upstream, *, streams: bool
) -> None:
    stack = make_stack("default: {budget: {max_wrong_hit_rate: 0.05, audit_share: 1.0}}")
    stack.budgets._draw, stack.budgets._worker = lambda: 0.0, AtOnce(lambda error: None)
    client = stack.wrap_client(openai, tenant="acme")
    said = call(client, False)[0]["text"]
    reworded: list[Any] = [{"role": "user", "content": "How can I reset my password?"}]
    made: Any = client.chat.completions.create(model="m", messages=reworded, stream=streams)
    if streams:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in made if chunk.choices)
    else:
        text = made.choices[0].message.content
    assert len(upstream.requests) == 2, "it was audited"
    assert text == said
