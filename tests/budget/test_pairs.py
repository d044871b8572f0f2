"""Pairs that were compared: a wrong one stays wrong, within bounds of memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachestack.semantic.budget.pairs import WHOLE, Pair, Pairs

ADDED = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6), st.booleans(), st.integers(1, 100)), max_size=150)


@given(ADDED)
def test_what_was_found_wrong_is_denied_for_as_long_as_its_entry_lives(added: list[tuple[int, int, bool, int]]) -> None:
    pairs, wrong = Pairs(max_pairs=40, max_denied=8), {}
    now = 0.0
    for question, entry, is_wrong, until in added:
        end = 1000.0 + until
        pairs.add(Pair(str(question), str(entry), is_wrong, end), now)
        if is_wrong:
            wrong[str(question), str(entry)] = end
        for exact, entry_id in wrong:
            assert entry_id in pairs.found(exact)[0]
            assert entry_id not in pairs.found(exact)[1]
            assert pairs.verdict(exact, entry_id) is True
        assert len(pairs) <= 41


@given(ADDED)
def test_what_is_written_is_what_is_in_memory(added: list[tuple[int, int, bool, int]]) -> None:
    pairs, disk = Pairs(max_pairs=40, max_denied=8), {}
    for question, entry, is_wrong, until in added:
        for changed in pairs.add(Pair(str(question), str(entry), is_wrong, float(until)), 0.0):
            if changed.until_s <= 0:
                disk.pop((changed.exact, changed.entry_id), None)
            else:
                disk[changed.exact, changed.entry_id] = changed
    assert {(p.exact, p.entry_id): p for p in pairs} == disk


def test_an_entry_that_is_wrong_for_many_serves_nobody() -> None:
    pairs = Pairs(max_denied=3)
    for number in range(4):
        pairs.add(Pair(str(number), "entry", True, 10.0), 0.0)
    assert pairs.found("never asked")[0] == {"entry"}
    assert [p.exact for p in pairs] == [WHOLE]
