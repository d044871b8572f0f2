"""A pack gives what each item alone gives, and that is what the whole prompt gives."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachestack.engines.transformers.labels import LabelSet, label_tries
from cachestack.engines.transformers.packing import plan_packs, score_pack, score_whole
from cachestack.engines.transformers.scoring import LabelScorer

pytestmark = pytest.mark.usefixtures("one_thread")
TOLERANCE = 1e-3
VOCABULARY = 420


@given(lengths=st.lists(st.integers(1, 50), max_size=60), max_tokens=st.integers(0, 60))
def test_a_plan_holds_every_item_once_in_order_within_the_budget(lengths, max_tokens):
    packs = plan_packs(lengths, max_tokens)
    assert [index for pack in packs for index in pack] == list(range(len(lengths)))
    for pack in packs:
        assert len(pack) == 1 or sum(lengths[i] for i in pack) <= max_tokens
    for first, second in pairwise(packs):
        assert sum(lengths[i] for i in first) + lengths[second[0]] > max_tokens, "no pack is left half empty"


def run_of_prefix(engine, ids):
    scorer = LabelScorer(engine, ["yes"], prompt="p", template="{text}")
    run = scorer.compute((), ids)
    assert run is not None
    return run


token = st.integers(3, VOCABULARY - 1)
token_lists = st.lists(token, min_size=1, max_size=12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prefix=st.lists(token, max_size=20),
    suffixes=st.lists(token_lists, min_size=1, max_size=6),
    # Few different tokens, so that labels share their beginnings.
    ids=st.lists(st.lists(st.integers(3, 5), min_size=1, max_size=4).map(tuple), min_size=2, max_size=8, unique=True),
    max_tokens=st.sampled_from([1, 5, 400]),
)
def test_pack_equals_one_by_one_equals_whole(engine, prefix, suffixes, ids, max_tokens):
    model = engine.loaded.model
    labels = LabelSet(tuple(map(str, ids)), tuple(ids), (1,))
    tries = () if labels.by_first_token else label_tries(labels, max_tokens)
    past = (run_of_prefix(engine, prefix),) if prefix else ()
    packed = score_pack(model, past, suffixes, labels, tries, max_tokens=max_tokens)
    for suffix, ours in zip(suffixes, packed, strict=True):
        (alone,) = score_pack(model, past, [suffix], labels, tries, max_tokens=max_tokens)
        whole = score_whole(model, [*prefix, *suffix], labels)
        for other in (alone, whole):
            assert float((ours.row - other.row).abs().max()) < TOLERANCE
            assert torch.allclose(ours.scores, other.scores, atol=TOLERANCE, rtol=0)
            assert int(ours.scores.argmax()) == int(other.scores.argmax())


def test_eager_attention_is_given_the_same_masks(make_engine, engine):
    labels = LabelSet(("a", "b", "c"), ((5, 6), (5, 7), (8,)), (1,))
    suffixes = [[9, 10, 11], [12], [13, 14]]
    prefix = list(range(20, 40))
    results = []
    for chosen in (engine, make_engine(attn_implementation="eager")):
        past = (run_of_prefix(chosen, prefix),)
        model = chosen.loaded.model
        results.append(score_pack(model, past, suffixes, labels, label_tries(labels, 100)))
    for first, second in zip(*results, strict=True):
        assert torch.allclose(first.scores, second.scores, atol=TOLERANCE, rtol=0)


def test_a_pack_leaves_the_prefix_as_it_was(engine):
    run = run_of_prefix(engine, list(range(20, 40)))
    before = [(k.clone(), v.clone()) for k, v in run.payload.layers]
    labels = LabelSet(("a", "b"), ((5, 6), (5, 7)), (1,))
    score_pack(engine.loaded.model, (run,), [[3, 4], [5]], labels, label_tries(labels, 100))
    for (keys, values), (k, v) in zip(before, run.payload.layers, strict=True):
        assert torch.equal(keys, k)
        assert torch.equal(values, v)


def test_several_runs_score_as_one_run_and_are_gathered_only_where_they_are_many(engine):
    ids = list(range(20, 60))
    scorer = LabelScorer(engine, ["card", "transfer"], prompt="p", template="{text}")

    def in_runs(size):
        runs = []
        for start in range(0, 40, size):
            run = scorer.compute(runs, ids[start : start + size])
            assert run is not None
            runs.append(run)
        return tuple(runs)

    few, many = in_runs(10), in_runs(4)
    assert scorer.ready(few) == few
    (gathered,) = scorer.ready(many)
    assert gathered.num_tokens == 40
    rows = [scorer.score(runs, [[3, 4]])[0].row for runs in (few, many, (gathered,))]
    assert torch.allclose(rows[0], rows[1], atol=1e-5)
    assert torch.allclose(rows[0], rows[2], atol=1e-5)


def test_what_is_kept_in_another_precision_is_brought_into_the_models_once(engine):
    scorer = LabelScorer(engine, ["card", "transfer"], prompt="p", template="{text}")
    kept = scorer.compute((), list(range(20, 60)), kv_dtype="bfloat16")
    assert kept is not None
    (ready,) = scorer.ready((kept,))
    assert (kept.payload.dtype, ready.payload.dtype) == ("bfloat16", "float32")
    assert torch.equal(scorer.score((ready,), [[3, 4]])[0].row, scorer.score((kept,), [[3, 4]])[0].row)


def test_nan_in_the_prefix_is_not_kept(make_engine):
    engine = make_engine()
    with torch.no_grad():
        engine.loaded.model.model.embed_tokens.weight[50] = float("nan")
    scorer = LabelScorer(engine, ["card"], prompt="p", template="{text}")
    assert scorer.compute((), [40, 50, 41]) is None
    assert scorer.compute((), [40, 41]) is not None


@pytest.mark.parametrize("labels", [["card", "transfer"], ["card", "card arrival", "card payment fee"]])
def test_scores_repeat_bit_for_bit(engine, labels, system):
    scorer = LabelScorer(engine, labels, prompt=system, template="{text}")
    ids = scorer.tokenise("where is my card")
    n = len(scorer.stable_tokens([ids]))
    run = scorer.compute((), ids[:n])
    assert run is not None
    first, second = (scorer.score((run,), [ids[n:], ids[n:]]) for _ in range(2))
    assert [s.scores for s in first] == [s.scores for s in second]
