"""Keys: what must differ differs, what must agree agrees, in every process."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cachestack.keys import Partition, block_hashes, contract_of, digest, exact_key, normalise, tenant_salt
from cachestack.requests import Message, Request, Sampling

QUESTION = (Message("system", "Be brief."), Message("user", "How do I pay?"))


def contract(**changes: object) -> str:
    return contract_of(Request(**({"messages": QUESTION} | changes)), "m").digest  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": (Message("system", "Be long."), QUESTION[1])},
        {"messages": (Message("user", "Hello"), Message("assistant", "Hi"), *QUESTION)},
        {"tools": ({"name": "pay"},)},
        {"response_format": {"type": "json_object"}},
        {"sampling": Sampling(temperature=0.0)},
        {"sampling": Sampling(top_p=1.0)},
        {"sampling": Sampling(seed=0)},
        {"sampling": Sampling(stop=("\n",))},
        {"sampling": Sampling(max_new_tokens=16)},
        {"sampling": Sampling(n=2)},
        {"extra": {"frequency_penalty": 0}},
        {"version": "2"},
    ],
    ids=lambda changes: next(iter(changes)) if isinstance(changes, dict) else None,
)
def test_every_parameter_counts_in_the_contract_even_at_its_zero(changes: dict[str, object]) -> None:
    assert contract(**changes) != contract()


def test_the_users_words_are_not_in_the_contract() -> None:
    other = (QUESTION[0], Message("user", "Something else"))
    assert contract(messages=other) == contract()


def test_the_order_of_keys_in_a_parameter_does_not_count() -> None:
    a = {"response_format": {"type": "x", "schema": {"a": 1, "b": 2}}}
    b = {"response_format": {"schema": {"b": 2, "a": 1}, "type": "x"}}
    assert contract(**a) == contract(**b)


def test_tenant_user_and_tags_are_walls_and_marks_not_contract() -> None:
    assert contract(tenant="a", user="u", tags=("t",), ttl_s=5.0) == contract()


def test_a_parameter_that_json_cannot_say_raises() -> None:
    with pytest.raises(TypeError):
        contract(extra={"callback": object()})
    with pytest.raises(ValueError, match=r"NaN|nan|Out of range"):
        contract(extra={"x": float("nan")})


@given(st.lists(st.binary(), max_size=5), st.lists(st.binary(), max_size=5))
def test_digest_keeps_parts_apart(a: list[bytes], b: list[bytes]) -> None:
    assume(a != b)
    assert digest(*a) != digest(*b)


@given(st.text(), st.text(), st.text(), st.text())
def test_partitions_never_collide(tenant: str, user: str, tenant2: str, user2: str) -> None:
    assume((tenant, user) != (tenant2, user2))
    assert Partition(tenant, user).digest != Partition(tenant2, user2).digest


def test_no_user_is_not_a_user_called_none() -> None:
    assert len({Partition("t").digest, Partition("t", "None").digest, Partition("t", "").digest}) == 3


def test_exact_keys_ignore_unicode_form_line_ends_and_outer_space_only() -> None:
    where, how = Partition("t"), contract_of(Request(QUESTION), "m")
    same = exact_key(where, how, "Où est-ce ?\nMerci")
    assert same == exact_key(where, how, "  Ou\u0300 est-ce ?\r\nMerci \n")
    assert same != exact_key(where, how, "où est-ce ?\nMerci")
    assert exact_key(where, how, "a  b") != exact_key(where, how, "a b")


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=80), st.integers(1, 20))
def test_block_hashes_chain(ids: list[int], block_size: int) -> None:
    hashes = list(block_hashes(ids, block_size, "f", b"s"))
    assert len(hashes) == len(ids) // block_size
    longer = list(block_hashes([*ids, 7] * 2, block_size, "f", b"s"))
    assert longer[: len(hashes)] == hashes
    if hashes:
        changed = [ids[0] + 1, *ids[1:]]
        assert not set(hashes) & set(block_hashes(changed, block_size, "f", b"s"))
        assert not set(hashes) & set(block_hashes(ids, block_size, "other model", b"s"))
        assert not set(hashes) & set(block_hashes(ids, block_size, "f", b"other tenant"))


def test_salts_differ_by_tenant_and_by_secret() -> None:
    salts = {tenant_salt(secret, tenant) for secret in (b"1", b"2") for tenant in ("a", "b", "")}
    assert len(salts) == 6


def test_keys_are_the_same_in_another_process() -> None:
    code = (
        "from cachestack.keys import *; from cachestack.requests import *;"
        "r = Request((Message('system', 'Be brief.'), Message('user', 'How do I pay?')));"
        "print(exact_key(Partition('t', 'ü'), contract_of(r, 'm'), 'x'));"
        "print(*(h.hex() for h in block_hashes(range(40), 16, 'f', tenant_salt(b's', 'ü'))))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    exact, blocks = printed.splitlines()
    assert exact == exact_key(Partition("t", "ü"), contract_of(Request(QUESTION), "m"), "x")
    assert blocks.split() == [h.hex() for h in block_hashes(range(40), 16, "f", tenant_salt(b"s", "ü"))]


SYSTEM, DEVELOPER = Message("system", "Be brief."), Message("developer", "Be brief.")
ASKED, SAID, AGAIN = Message("user", "One?"), Message("assistant", "Two."), Message("user", "Three?")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((SYSTEM, AGAIN), (DEVELOPER, AGAIN)),
        ((SYSTEM, ASKED, SAID, AGAIN), (ASKED, SAID, SYSTEM, AGAIN)),
        ((SYSTEM, ASKED, SAID, AGAIN), (ASKED, SYSTEM, SAID, AGAIN)),
        ((SYSTEM, SYSTEM, ASKED, AGAIN), (SYSTEM, ASKED, SYSTEM, AGAIN)),
        ((SYSTEM, DEVELOPER, AGAIN), (DEVELOPER, SYSTEM, AGAIN)),
        ((ASKED, SAID, AGAIN), (SAID, ASKED, AGAIN)),
        ((ASKED, SAID, AGAIN), (ASKED, Message("tool", "Two."), AGAIN)),
        ((ASKED, AGAIN), (ASKED, Message("assistant", "Three?"))),
        ((ASKED, AGAIN), (ASKED, Message("system", "Three?"))),
        ((Message("user", "One?Two."), AGAIN), (ASKED, Message("user", "Two."), AGAIN)),
        ((ASKED, Message("assistant", "Answer:")), (ASKED, Message("assistant", "Answer: "))),
    ],
)
def test_roles_and_places_of_messages_count(one: tuple[Message, ...], other: tuple[Message, ...]) -> None:
    def key(messages: tuple[Message, ...]) -> str:
        found = contract_of(Request(messages), "m")
        return exact_key(Partition("t"), found, messages[-1].content)

    assert key(one) != key(other)


class Colour(Enum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


VALUES = [
    None, "None", False, 0, 0.0, -0.0, True, 1, 1.0, "1", "", [], {}, (), [1], (1,), [[1]], ((1,),), {"a": 1},
    {"a": [1]}, {"a": (1,)}, {"a": None}, "red", Colour.RED, Number.ONE, 10**400, 2**63, float(2**63), "e\u0301",
    "\u00e9", "\ud800", "\0", {"\0": 1}, {"1": 1},
]  # fmt: skip


@pytest.mark.parametrize(("i", "j"), [(i, j) for j in range(len(VALUES)) for i in range(j)])
def test_different_parameters_are_different_contracts(i: int, j: int) -> None:
    assert contract(extra={"x": VALUES[i]}) != contract(extra={"x": VALUES[j]})
    assert contract(response_format=VALUES[i]) != contract(response_format=VALUES[j])


@dataclass
class Settings:
    a: int = 1


class Text(str):
    __slots__ = ()


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [b"x", {1: "a"}, {None: "a"}, {True: "a"}, {("a",): 1}, {"\0tuple": [1]}, {1, 2}, Settings(), Text("x"),
     float("nan"), float("inf"), nested(100_000), 10**5000, object(), range(3)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_json_cannot_say_without_loss_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        contract(extra={"x": value})


@pytest.mark.parametrize(
    "with_text",
    [
        lambda text: {"extra": {"x": text}},
        lambda text: {"sampling": Sampling(stop=(text,))},
        lambda text: {"version": text},
    ],
    ids=["extra", "stop", "version"],
)
def test_nothing_that_is_long_is_held_for_its_digest(with_text: Callable[[str], dict[str, object]]) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        digests = {contract(**with_text("y" * 10_000 + str(number))) for number in range(50)}
        assert len(digests) == 50
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
