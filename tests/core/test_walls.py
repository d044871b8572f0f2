"""What one tenant, user or role can learn or change of another's, by whatever door: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cachestack.requests import Generation, Request

if TYPE_CHECKING:
    from collections.abc import Generator

    from cachestack.stack import CacheStack
    from tests.core.conftest import Clock, MakeStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"
MINE = {"tenant": "mine", "user": "ana", "role": "staff"}
OTHERS = [
    {"tenant": "Mine"},
    {"tenant": "mine "},
    {"tenant": "mi\u200bne"},
    {"tenant": "mine\0"},
    {"user": "bob"},
    {"user": "Ana"},
    {"user": None},
    {"role": "guest"},
    {"role": None},
    {"user": "staff", "role": "ana"},
    {"tenant": "default"},
]
POLICY = """
default: {semantic: {walls: [user, role]}, retention: {ttl_s: 10}, fallback: {engine_error: [stale, raise]}}
"""


class Secret:
    """Says whose answer it is. Fails on demand."""

    name = model = "secret"

    def __init__(self) -> None:
        self.fails = False

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        if self.fails:
            raise OSError("down")
        text = f"Open the blue door of {request.tenant!r} with {request.user!r} and {request.role!r}."
        yield text
        return Generation(text)


@pytest.fixture
def engine() -> Secret:
    return Secret()


@pytest.fixture
def stack(make_stack: MakeStack, engine: Secret) -> CacheStack:
    return make_stack(POLICY, engines={"secret": engine})


@pytest.mark.parametrize("asked", [QUESTION, REWORDED])
@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_nobody_else_is_served(stack: CacheStack, other: dict[str, str | None], asked: str) -> None:
    mine = stack.chat(QUESTION, **MINE)
    assert stack.explain(asked, **MINE).would != "engine"
    theirs = MINE | other
    explained = stack.explain(asked, **theirs)
    assert (explained.would, explained.answer) == ("engine", None)
    assert mine.hit_id not in str(explained)
    answer = stack.chat(asked, **theirs)
    assert answer.text == f"Open the blue door of {theirs['tenant']!r} with {theirs['user']!r} and {theirs['role']!r}."
    assert mine.hit_id not in str(answer.trace.as_dict())


@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_a_stale_answer_stays_inside_too(
    stack: CacheStack, engine: Secret, clock: Clock, other: dict[str, str | None]
) -> None:
    mine = stack.chat(QUESTION, **MINE)
    clock.now_s += 20
    engine.fails = True
    with pytest.raises(OSError, match="down"):
        stack.chat(QUESTION, **(MINE | other))
    assert stack.chat(QUESTION, **MINE).text == mine.text


@pytest.mark.parametrize("tenant", ["other", "Mine", "mine ", "default"])
def test_another_tenant_cannot_remove_or_report_what_is_mine(stack: CacheStack, tenant: str) -> None:
    mine = stack.chat(QUESTION, **MINE)
    assert mine.hit_id is not None
    assert not stack.report_wrong(mine.hit_id, tenant=tenant)
    assert stack.invalidate(tenant=tenant) == 0
    assert stack.invalidate(tenant=tenant, entry=mine.hit_id) == 0
    assert stack.invalidate(tenant=tenant, user="ana") == 0
    assert stack.chat(QUESTION, **MINE).trace.served_from == "exact"
    stats = stack.stats().by_tenant
    assert (stats["mine"].wrong_hit_reports, stats["mine"].requests) == (0, 2)
    assert tenant not in stats, "a report of what is not there leaves nothing behind"


def test_compare_reads_nothing_that_is_kept(stack: CacheStack) -> None:
    stack.chat(QUESTION, **MINE)
    found = stack.compare("Something else entirely", QUESTION, **MINE)
    assert not found.serves
    assert "of 'mine'" not in str(found)
