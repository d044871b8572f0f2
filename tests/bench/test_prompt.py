"""Prompts of exact lengths, made of whole examples and whole tickets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.bench.prompt import Material, choose, few_shot, load_material
from cachestack.errors import UsageError


@given(st.lists(st.integers(1, 30), max_size=12), st.data())
def test_chosen_costs_add_up(costs, data):
    total = sum(data.draw(st.permutations(costs))[: data.draw(st.integers(0, len(costs)))])
    chosen = choose(costs, total)
    assert chosen is not None
    assert sum(costs[i] for i in chosen) == total
    assert list(chosen) == sorted(set(chosen))


def test_what_cannot_be_added_up_is_not_made_up():
    assert choose([4, 6], 5) is None
    assert choose([4], -1) is None
    assert choose([4], 0) == ()


@pytest.mark.parametrize("prefix_tokens", [167, 977])
def test_the_lengths_of_the_benchmark_are_exact(local_engine, prefix_tokens):
    prompts = few_shot(local_engine, prefix_tokens, 25, load_material())
    assert len(prompts.prefix) == prefix_tokens
    assert {len(suffix) for suffix in prompts.suffixes} == {25}
    assert len(set(prompts.suffixes)) >= 15, "a pack holds different tickets"
    assert prompts.pack(len(prompts.suffixes) - 1, 2) == (prompts.suffixes[-1], prompts.suffixes[0])


def test_the_prompt_is_that_of_a_classifier(local_engine):
    material = load_material()
    prompts = few_shot(local_engine, 167, 25, material)
    text = local_engine.loaded.tokenizer.decode(prompts.whole(0))
    assert text.startswith("<|im_start|>system\n" + material.rules + "\n\nTicket: ")
    assert material.tickets[0] in text
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    shown = [f"Ticket: {ticket}\nTeam: {team}" for team, ticket in material.examples]
    system = text.removeprefix("<|im_start|>system\n").partition("<|im_end|>")[0]
    assert all(part in shown for part in system.split("\n\n")[1:]), "no example is cut"
    assert prompts.scorer.labels.labels == material.teams


def test_lengths_that_cannot_be_made_are_named(local_engine):
    material = load_material()
    with pytest.raises(UsageError, match="exactly 20 tokens"):
        few_shot(local_engine, 20, 25, material)
    with pytest.raises(UsageError, match="exactly 5000 tokens"):
        few_shot(local_engine, 5000, 25, material)
    with pytest.raises(UsageError, match=r"only \d+ of 30 tickets can be given exactly 9 tokens"):
        few_shot(local_engine, 167, 9, material)


def test_material_is_balanced():
    material = load_material()
    counts = [sum(team == of for of, _ in material.examples) for team in material.teams]
    assert max(counts) - min(counts) <= 1
    assert {team for team, _ in material.examples} == set(material.teams)
    with pytest.raises(ValueError, match="labels"):
        Material.model_validate(material.model_dump() | {"labels": []})
