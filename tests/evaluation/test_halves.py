"""Halves of a file's pairs: they part it, keep what shares a text together, and follow the seed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cachestack.evaluation.halves import only_half
from cachestack.evaluation.pairs import Pair, pair_of


def pair(number: int, a: Any, b: Any) -> Pair:
    return pair_of({"id": str(number), "a": a, "b": b, "same_answer": True}, f"here:{number}")


texts = st.integers(0, 30).map(lambda n: f"question {n}")
files = st.lists(st.tuples(texts, texts), max_size=40).map(lambda ab: [pair(n, a, b) for n, (a, b) in enumerate(ab)])


@given(files, st.integers(0, 5))
def test_halves_part_a_file_and_share_no_text(pairs: list[Pair], seed: int) -> None:
    first, second = only_half(pairs, "a", seed), only_half(pairs, "b", seed)
    assert sorted([*first, *second], key=lambda p: int(p.id)) == pairs
    mine, theirs = ({p.a[0].content for p in half} | {p.b[0].content for p in half} for half in (first, second))
    assert not mine & theirs


@given(files, st.randoms())
def test_the_order_of_lines_does_not_matter(pairs: list[Pair], random: Any) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    assert {p.id for p in only_half(pairs, "a")} == {p.id for p in only_half(shuffled, "a")}


def test_a_chain_of_shared_texts_stays_together() -> None:
    chain = [pair(n, f"q{n}", f"Q{n + 1}  ") for n in range(50)]  # case and spaces tell nothing apart
    assert len(only_half(chain, "a")) in (0, 50)


def test_halves_are_about_equal_and_follow_the_seed() -> None:
    pairs = [pair(n, f"a {n}", f"b {n}") for n in range(1000)]
    first, other = only_half(pairs, "a", 0), only_half(pairs, "a", 1)
    assert 400 < len(first) < 600
    assert 150 < len({p.id for p in first} & {p.id for p in other}) < 350  # as two independent draws would have it


def test_conversations_with_one_last_message_stay_together() -> None:
    talks = [
        pair(n, [{"role": "user", "content": f"passage {n}"}, {"role": "user", "content": "Was it wet?"}], f"other {n}")
        for n in range(20)
    ]
    assert len(only_half(talks, "a")) in (0, 20)
