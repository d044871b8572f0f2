"""Pairs made of the corpus's conversations, and `cachestack eval conversations`."""

from __future__ import annotations

import json

import pytest

from cachestack.corpus.load import load_conversations
from cachestack.evaluation.conversations import AS_WRITTEN, SAME_LAST, conversation_pairs, split_of
from tests.cli.test_eval import run


def test_the_parts_share_no_conversation_and_both_are_large() -> None:
    names = [c.id for c in load_conversations()]
    tuning = {name for name in names if split_of(name) == "tuning"}
    assert 200 < len(tuning) < 250
    for part in ("tuning", "held-out"):
        pairs = [p for some in conversation_pairs(load_conversations(), part).values() for p in some]
        assert {p.id[: len("talk-a-0001")] for p in pairs} == {n for n in names if split_of(n) == part}


def test_the_last_turn_is_the_same_in_one_set_and_the_system_prompt_in_both() -> None:
    found = conversation_pairs(load_conversations(), "all")
    assert all(pair.a[-1] == pair.b[-1] for pair in found[SAME_LAST])
    assert all(pair.a[-1] != pair.b[-1] for pair in found[AS_WRITTEN])
    for pair in found[SAME_LAST]:
        if pair.same_answer:
            assert [m for m in pair.a if m.role == "system"] == [m for m in pair.b if m.role == "system"]
    assert {p.same_answer for p in found[SAME_LAST]} == {True, False}


def test_a_seed_draws_the_same_again_and_another_something_else() -> None:
    first, again, other = (conversation_pairs(load_conversations(), "tuning", seed) for seed in (1, 1, 2))
    assert first == again
    assert first[SAME_LAST] != other[SAME_LAST]


def test_the_command_prints_both_sets_with_intervals() -> None:
    done = run("conversations", "--split", "tuning", "--json")
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)["files"]
    assert list(files) == [f"{name} (tuning, seed 0)" for name in (SAME_LAST, AS_WRITTEN)]
    for found in files.values():
        assert {"should_hit", "traps", "by_category", "by_language", "decided_by"} <= set(found)
        assert found["traps"]["n"] > 100
        assert set(found["by_language"]) == {"en", "fr"}
        assert len(found["traps"]["interval"]) == 2


@pytest.mark.parametrize("split", ["held-out", "all"])
def test_only_the_tuning_part_shows_its_pairs(split: str, tmp_path: object) -> None:
    done = run("conversations", "--split", split, "--mistakes", f"{tmp_path}/m.jsonl")
    assert done.returncode == 2
    assert "--split tuning" in done.stderr
