"""Any sequence of requests, invalidations, restarts and moved clocks: what is served was made for this very request.

The engine's answer says all that it was asked under, and when. So each answer can be judged by itself: its tenant,
user, contract and question must be those of the request that got it, it must not be older than allowed, and nothing
that was invalidated since may be in it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from cachestack.decisions import Response
from cachestack.requests import Generation, Request

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.core.conftest import Clock, MakeStack

TTL_S, SLACK_S = 100.0, 60.0
POLICY = "default: {retention: {ttl_s: 100}}\ntenants: {b: {semantic: {walls: [user, role]}}}"
GROUPS = [
    ["How do I reset my password?", "How can I reset my password?"],
    ["How do I reset my router?", "How can I reset my router?"],
    ["How do I enable roaming?", "How do I disable roaming?"],
]
QUESTIONS = [question for group in GROUPS for question in group]
ALIKE = {question: {question} if "roaming" in question else set(group) for group in GROUPS for question in group}
USUAL: dict[str, Any] = {"tenant": "a", "user": "u", "role": "r", "ttl_s": None, "tags": ()}
CHANGES = [
    {}, {}, {}, {"tenant": "b"}, {"tenant": "A"}, {"tenant": "b", "user": "v"}, {"tenant": "b", "user": None},
    {"tenant": "b", "role": "s"}, {"user": None}, {"system": "Be brief."}, {"version": "1"}, {"temperature": 0.0},
    {"temperature": 0.9}, {"extra": {"x": 1}}, {"extra": {"x": "1"}}, {"ttl_s": 30.0}, {"tags": ("t",)},
]  # fmt: skip
MOVES_S = [1.0, 1.0, 15.0, 50.0, 120.0, -5.0, -80.0]
REMOVALS: list[dict[str, Any]] = [
    {"tenant": "a"}, {"tenant": "b", "user": "u"}, {"tag": "t"}, {"version": "1"}, {"older_than": 20},
]  # fmt: skip


def steps(chance: random.Random) -> Iterator[Any]:
    for _ in range(60):
        kind = chance.random()
        if kind < 0.8:
            yield {"prompt": chance.choice(QUESTIONS)} | USUAL | chance.choice(CHANGES)
        elif kind < 0.92:
            yield chance.choice(MOVES_S)
        elif kind < 0.97:
            yield chance.choice(REMOVALS)
        else:
            yield "restart"


def described(request: Request, now_s: float, number: int) -> str:
    walls = {"tenant": request.tenant}
    if request.tenant == "b":
        walls |= {"user": request.user or "", "role": request.role or ""}
    contract = [request.system, request.version, request.sampling.temperature, dict(request.extra)]
    return json.dumps({"walls": walls, "contract": contract, "question": request.question, "at": now_s, "n": number,
                       "user": request.user, "tags": request.tags, "version": request.version})  # fmt: skip


class Telling:
    name = model = "telling"

    def __init__(self, clock: Clock) -> None:
        self.clock, self.calls = clock, 0

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        self.calls += 1
        text = described(request, self.clock(), self.calls)
        yield text
        return Generation(text)


def check(response: Response, asked: dict[str, Any], now_s: float, removed: list[tuple[int, dict[str, Any]]]) -> None:
    made, wanted = json.loads(response.text), json.loads(response_as_if_new(asked, now_s))
    assert (made["walls"], made["contract"]) == (wanted["walls"], wanted["contract"])
    assert made["question"] in ALIKE[asked["prompt"]]
    age_s = now_s - made["at"]
    assert age_s >= -SLACK_S
    if response.trace.served_from != "engine":
        assert age_s < min(TTL_S, asked["ttl_s"] or TTL_S)
        assert asked.get("temperature") != 0.9
        if asked["tenant"] == "b":
            assert asked["user"]
            assert asked["role"]
    for number, gone in removed:
        if made["n"] <= number:
            assert not matches(made, gone), (made, gone)


def response_as_if_new(asked: dict[str, Any], now_s: float) -> str:
    from cachestack.asking import build_request

    return described(build_request(**asked), now_s, 0)


def matches(made: dict[str, Any], gone: dict[str, Any]) -> bool:
    return (
        gone.get("tenant") in (None, made["walls"]["tenant"])
        and gone.get("user") in (None, made["user"])
        and ("tag" not in gone or gone["tag"] in made["tags"])
        and gone.get("version") in (None, made["version"])
        and ("older_than" not in gone or made["at"] < gone["now_s"] - gone["older_than"])
    )


@pytest.mark.parametrize("meaning", [False, True])
def test_what_is_served_was_made_for_this_request(
    make_stack: MakeStack, clock: Clock, tmp_path_factory: pytest.TempPathFactory, meaning: bool
) -> None:
    served: Counter[str] = Counter()
    for seed in range(30 if not meaning else 12):
        engine, home = Telling(clock), tmp_path_factory.mktemp("home")
        stack = make_stack(POLICY, meaning=meaning, home=home, engines={"telling": engine})
        removed: list[tuple[int, dict[str, Any]]] = []
        num_asked = 0
        for step in steps(random.Random(seed)):
            if step == "restart":
                stack.close()
                stack = make_stack(POLICY, meaning=meaning, home=home, engines={"telling": engine})
            elif isinstance(step, float):
                clock.now_s += step
            elif "prompt" in step:
                response = stack.chat(**step)
                check(response, step, clock(), removed)
                served[response.trace.served_from] += 1
                num_asked += 1
            else:
                stack.invalidate(**step)
                removed.append((engine.calls, step | {"now_s": clock()}))
        counted = stack.stats().by_tenant.values()
        assert sum(s.requests for s in counted) == num_asked
        for s in counted:
            outcomes = s.semantic.num_hits + sum(s.semantic.misses.values()) + sum(s.semantic.bypasses.values())
            assert outcomes == s.requests
        stack.close()
    assert served["exact"] > 100
    assert served["semantic"] > 50 or not meaning
