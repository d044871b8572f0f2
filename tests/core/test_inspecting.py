"""explain, compare and invalidate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from cachestack.decisions import Reason
from cachestack.errors import UsageError
from cachestack.requests import Generation, Request

if TYPE_CHECKING:
    from collections.abc import Generator

    from cachestack.stack import CacheStack
    from tests.core.conftest import Clock, MakeStack


class Numbered:
    name = model = "numbered"

    def __init__(self) -> None:
        self.calls = 0

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        self.calls += 1
        yield f"answer {self.calls}"
        return Generation(f"answer {self.calls}")


@pytest.fixture
def engine() -> Numbered:
    return Numbered()


@pytest.fixture
def stack(make_stack: MakeStack, engine: Numbered) -> CacheStack:
    return make_stack(
        "tenants: {t: {}, private: {semantic: {walls: [user]}}, closed: {semantic: {enabled: false}}}",
        engines={"numbered": engine},
    )


def test_explain_does_nothing(stack: CacheStack, engine: Numbered) -> None:
    would = stack.explain("How do I reset my password?", tenant="t")
    assert (would.would, would.answer, engine.calls) == ("engine", None, 0)
    assert stack.performer.store.size().num_entries == 0
    assert "t" not in stack.stats().by_tenant
    assert "would call the engine" in str(would)


@pytest.mark.parametrize(
    ("question", "would"),
    [
        ("How do I reset my password?", "exact"),
        ("How can I reset my password?", "semantic"),
        ("How do I reset my router?", "engine"),
    ],
)
def test_explain_says_what_chat_then_does(stack: CacheStack, question: str, would: str) -> None:
    answer = stack.chat("How do I reset my password?", tenant="t").text
    explained = stack.explain(question, tenant="t")
    assert explained.would == would == stack.explain(question, tenant="t").would
    assert explained.answer == (None if would == "engine" else answer)
    done = stack.chat(question, tenant="t").trace
    assert done.served_from == would
    assert [s.reason for s in done.steps[:2]] == [s.reason for s in explained.trace.steps[:2]]


@pytest.mark.parametrize(
    ("cached", "new", "options", "serves", "reason", "differs"),
    [
        ("How do I reset my password?", "How do I reset my password?", {}, True, Reason.EXACT, ()),
        ("How do I reset my password?", "How can I reset my password?", {}, True, None, ()),
        ("Convert 100 USD to EUR", "Convert 250 USD to EUR", {}, False, None, ()),
        ("How do I turn it on?", "Where is the sea?", {}, False, Reason.BELOW_THRESHOLD, ()),
        ("Hello there", "Hello there", {"tenant": "closed"}, False, Reason.DISABLED, ()),
        ("Hello there", "Hello there", {"tenant": "private"}, False, Reason.NO_PRINCIPAL, ()),
    ],
)
def test_compare(
    stack: CacheStack,
    cached: str,
    new: str,
    options: dict[str, str],
    serves: bool,
    reason: Reason | None,
    differs: tuple[str, ...],
) -> None:
    found = stack.compare(cached, new, **({"tenant": "t"} | options))
    assert (found.serves, found.differs) == (serves, differs), str(found)
    assert reason is None or found.reason is reason


def test_compare_names_the_walls_and_the_parameters_that_differ(stack: CacheStack) -> None:
    one = Request(messages_of("Hello there"), tenant="t")
    two = Request(messages_of("Hello there", system="Be kind."), tenant="private", user="u", extra={"locale": "fr"})
    found = stack.compare(one, two)
    assert not found.serves
    assert found.differs == ("tenant", "user", "system", "extra")
    assert "differs: tenant" in str(found)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("How do I reset my password?", "How can I reset my password?"),
        ("How do I reset my password?", "How do I reset my username?"),
        ("Convert 100 USD to EUR", "Convert 100 EUR to USD"),
        ("How do I enable it?", "How do I disable it?"),
        ("Comment payer ?", "Comment puis-je payer ?"),
    ],
)
def test_compare_decides_as_chat_does(stack: CacheStack, one: str, two: str) -> None:
    stack.chat(one, tenant="t")
    compared = stack.compare(one, two, tenant="t")
    served = stack.chat(two, tenant="t").trace.served_from
    assert compared.serves == (served != "engine")


def messages_of(text: str, system: str | None = None):  # type: ignore[no-untyped-def]
    from cachestack.requests import as_messages

    return as_messages(text, system)


def test_invalidate_by_each_condition(stack: CacheStack, clock: Clock) -> None:
    begun = clock.now_s
    ids = {}
    for i, options in enumerate(
        ({"tags": ["a"]}, {"version": "1"}, {"tags": ["a", "b"], "version": "1"}, {"tenant": "private", "user": "u"})
    ):
        clock.now_s += 10
        response = stack.chat(f"Question number {i}, please", **({"tenant": "t"} | options))  # type: ignore[arg-type]
        ids[i] = response.hit_id

    def left() -> set[int]:
        known = {0: {"tags": ["a"]}, 1: {"version": "1"}, 2: {"tags": ["a", "b"], "version": "1"}}
        known[3] = {"tenant": "private", "user": "u"}  # type: ignore[dict-item]
        return {
            i
            for i, options in known.items()
            if stack.explain(f"Question number {i}, please", **({"tenant": "t"} | options)).would == "exact"  # type: ignore[arg-type]
        }

    assert left() == {0, 1, 2, 3}
    assert stack.invalidate(tag="b", version="2") == 0
    assert stack.invalidate(tag="b", tenant="private") == 0
    assert stack.invalidate(user="u") == 1
    assert left() == {0, 1, 2}
    moment = datetime.fromtimestamp(begun + 15, UTC)
    assert stack.invalidate(older_than=moment) == 1
    assert left() == {1, 2}
    assert stack.invalidate(older_than=timedelta(seconds=15)) == 1
    assert left() == {2}
    assert stack.invalidate(older_than=3600) == 0
    assert stack.invalidate(entry=ids[2], tenant="private") == 0
    assert stack.invalidate(tag="a", version="1") == 1
    assert left() == set()


def test_invalidate_reaches_what_is_found_by_meaning(stack: CacheStack) -> None:
    stack.chat("How do I reset my password?", tenant="t", tags=["handbook"])
    assert stack.explain("How can I reset my password?", tenant="t").would == "semantic"
    assert stack.invalidate(tag="handbook") == 1
    assert stack.explain("How can I reset my password?", tenant="t").would == "engine"


@pytest.mark.parametrize("options", [{}, {"older_than": -1.0}])
def test_invalidate_needs_a_condition_that_makes_sense(stack: CacheStack, options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        stack.invalidate(**options)  # type: ignore[arg-type]


def test_another_stack_on_the_same_home_sees_entries_and_invalidations_at_once(make_stack: MakeStack) -> None:
    one, two = (make_stack("tenants: {t: {}}", engines={"n": Numbered()}) for _ in range(2))
    one.chat("How do I reset my password?", tenant="t")
    assert two.chat("How do I reset my password?", tenant="t").trace.served_from == "exact"
    assert two.chat("How can I reset my password?", tenant="t").trace.served_from == "semantic"
    assert two.invalidate(tenant="t") >= 1
    for question in ("How do I reset my password?", "How can I reset my password?"):
        assert one.explain(question, tenant="t").would == "engine"
