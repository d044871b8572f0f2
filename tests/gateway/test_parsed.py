"""Calls that are kept by their bytes: a bounded number, whatever their length."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from cachestack.access import Principal
from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models, Offered
from cachestack.bodies.wishes import NONE
from cachestack.gateway.dialects.openai_chat import OpenAIChat
from cachestack.gateway.parsed import ParsedCalls
from cachestack.gateway.wire import read_object
from cachestack.pipeline import Pipeline
from cachestack.policy_set import PolicySet
from cachestack.requests import Message, Request
from tests.gateway.served import ScriptedEngine

CALL = Call(Request((Message("user", "Hello?"),)), "m", "engine")


def test_short_bodies_do_not_pile_up() -> None:
    parsed = ParsedCalls(max_bytes=1024 * 1024)
    bodies = [b'{"q":%d}' % number for number in range(5_000)]
    for body in bodies:
        parsed.put("who", body, CALL)
    assert sum(parsed.get("who", body) is not None for body in bodies) < 1_000
    assert parsed.get("who", bodies[-1]) is CALL
    assert parsed.get("another", bodies[-1]) is None


FILLERS = {
    "objects": "{}", "lists": "[]", "deep": "[[[[]]]]", "pairs": '{"a":0}', "many keys": '{"a":0,"b":1,"c":2,"d":3}',
    "fractions": "0.5", "whole": "7", "texts": '"some words"', "wide": '"\U0001f600 and much that is narrow beside it"',
    "none": "null", "long text": '"' + "x" * 500 + '"',
}  # fmt: skip


@pytest.mark.parametrize(
    ("filler", "num_bytes"), [*((filler, 30_000) for filler in FILLERS.values()), ("{}", 300), ('"x"', 300)]
)
def test_what_is_kept_takes_no_more_memory_than_it_may(filler: str, num_bytes: int) -> None:
    max_bytes = 500_000
    dialect = OpenAIChat(Models((Offered("any", "", ("*",)),)))
    given = Given(Principal("acme"), NONE, {})
    values = ",".join([filler] * (num_bytes // len(filler.encode())))
    numbers = range(60 if num_bytes < 1000 else 30)
    body_of = b'{"model":"m","messages":[{"role":"user","content":"%d?"}],"x":[%s]}'
    bodies = [body_of % (number, values.encode()) for number in numbers]
    parsed, policy, engine = ParsedCalls(max_bytes), PolicySet.load().policy("acme"), ScriptedEngine("")
    pipeline = Pipeline({}, None, frozenset())  # type: ignore[arg-type]
    gc.collect()
    tracemalloc.start()
    try:
        for body in bodies:
            call = dialect.parse(read_object(body), given)
            pipeline._read(call.request, policy, engine, call.reading)
            parsed.put("who", body, call)
        del call, body
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < max_bytes
