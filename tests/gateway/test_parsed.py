"""Calls that are kept by their bytes: a bounded number, whatever their length."""

from __future__ import annotations

from cachestack.bodies.call import Call
from cachestack.gateway.parsed import ParsedCalls
from cachestack.requests import Message, Request

CALL = Call(Request((Message("user", "Hello?"),)), "m", "engine")


def test_short_bodies_do_not_pile_up() -> None:
    parsed = ParsedCalls(max_bytes=1024 * 1024)
    bodies = [b'{"q":%d}' % number for number in range(5_000)]
    for body in bodies:
        parsed.put("who", body, CALL)
    assert sum(parsed.get("who", body) is not None for body in bodies) < 1_000
    assert parsed.get("who", bodies[-1]) is CALL
    assert parsed.get("another", bodies[-1]) is None
