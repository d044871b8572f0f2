"""Attention over kept parts where they lie: the same numbers as over one gathered past, for any way to cut it."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from cachestack.engines.base import KVRun
from cachestack.engines.transformers.adapter import PARTS_ATTENTION, attention_name, forward
from cachestack.engines.transformers.attention import SHORT_PAST_TOKENS, Rows, can_share, over_parts, shares_past
from cachestack.engines.transformers.decode import GATHERED_TOKENS, Passes
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.growing import MAX_PARTS, MIN_ROOM_TOKENS
from cachestack.engines.transformers.kv import KVTensors, cut, fork, run_of
from cachestack.engines.transformers.labels import LabelSet, label_tries
from cachestack.engines.transformers.load import as_loaded
from cachestack.engines.transformers.packing import score_pack
from cachestack.errors import EngineError

NUM_TOKENS = 40
FAMILIES = ("llama", "gpt2", "qwen2", "mistral")
IDS = torch.randint(3, 400, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(1))
NEXT = torch.tensor([[11, 12, 13]])
BYTES_A_TOKEN = 2 * 2 * 2 * 8 * 4  # 2 layers, keys and values, 2 heads, 8 dimensions, float32
CACHE = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"
Model = Any


def runs_of(model: Model, edges: Sequence[int], ids: torch.Tensor = IDS) -> list[KVRun]:
    """The KV of one pass, cut at `edges`."""
    cache = fork((), model.config)
    forward(model, input_ids=ids[:, : edges[-1]], cache=cache)
    return [run_of(cut(cache, a, b), a) for a, b in pairwise(edges)]


def copies(runs: Sequence[KVRun]) -> list[torch.Tensor]:
    return [t.clone() for run in runs for pair in run.payload.layers for t in pair]


def same(runs: Sequence[KVRun], before: list[torch.Tensor]) -> bool:
    tensors = [t for run in runs for pair in run.payload.layers for t in pair]
    return all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Model]) -> Model:
    return make_model("llama")


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_parts_where_they_lie_give_what_one_gathered_past_gives(
    make_model: Callable[..., Model], family: str, data: st.DataObject
) -> None:
    model = make_model(family)
    assert can_share(model)
    cuts = data.draw(st.lists(st.integers(1, NUM_TOKENS - 1), max_size=MAX_PARTS + 2, unique=True).map(sorted))
    num_new = data.draw(st.sampled_from([1, 2, 9]))
    runs = runs_of(model, [0, *cuts, NUM_TOKENS])
    before = copies(runs)
    shared = fork(runs, model.config, shares=True)
    first, last = IDS[:, :num_new], IDS[:, num_new : num_new + 1]
    expected = fork(runs, model.config)
    for ids in (first, last, last, first):  # a prefill, single tokens, and a prefill after them
        ours = forward(model, input_ids=ids, cache=shared, keep_logits=0)
        theirs = forward(model, input_ids=ids, cache=expected, keep_logits=0)
        assert torch.allclose(ours, theirs, atol=2e-4 * float(theirs.abs().max()))
    assert shared.get_seq_length() == expected.get_seq_length() == NUM_TOKENS + 2 * num_new + 2
    assert same(runs, before)


def test_a_prefix_that_is_not_looked_at_would_be_noticed(model: Model) -> None:
    """The tolerance of the test above, and of the comparison in `can_share`, is far below what the prefix does."""
    (run,) = runs_of(model, [0, NUM_TOKENS])
    positions = torch.arange(NUM_TOKENS, NUM_TOKENS + 3)[None]
    blind = forward(model, input_ids=NEXT, position_ids=positions)
    seeing = forward(model, input_ids=NEXT, cache=fork((run,), model.config))
    assert float((blind - seeing).abs().max()) > 0.05 * float(seeing.abs().max())


def test_several_rows_stand_behind_one_past(model: Model) -> None:
    runs = runs_of(model, [0, 15, NUM_TOKENS])
    rows = torch.tensor([[21, 22], [31, 32], [41, 42]])
    got = forward(model, input_ids=rows, cache=fork(runs, model.config, shares=True))
    for row, logits in zip(rows, got, strict=True):
        alone = forward(model, input_ids=row[None], cache=fork(runs, model.config))
        assert torch.allclose(logits, alone[0], atol=1e-3)


def test_a_padding_mask_reaches_into_the_past_also_where_it_is_shared(model: Model) -> None:
    runs = runs_of(model, [0, NUM_TOKENS])
    mask = torch.ones(1, NUM_TOKENS + 3, dtype=torch.long)
    mask[:, 5:20] = 0
    shared, gathered = (
        forward(model, input_ids=NEXT, attention_mask=mask, cache=fork(runs, model.config, shares=shares))
        for shares in (True, False)
    )
    assert torch.equal(shared, gathered)
    assert not torch.allclose(shared, forward(model, input_ids=NEXT, cache=fork(runs, model.config)), atol=1e-3)


# Which models


def test_only_plain_attention_of_the_expected_kind_is_replaced(make_model: Callable[..., Model]) -> None:
    import transformers

    assert can_share(make_model("llama"))
    assert not can_share(make_model("llama", attn_implementation="eager"))
    size = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
    capped = transformers.Gemma2Config(**size, num_key_value_heads=2, intermediate_size=64)
    capped._attn_implementation = "eager"  # what Transformers chooses for it: soft caps
    assert not can_share(transformers.AutoModelForCausalLM.from_config(capped).eval())


def test_a_model_whose_attention_does_something_of_its_own_is_left_alone(make_model: Callable[..., Model]) -> None:
    """Found by comparing, not by its name: this one weighs its output by the number of keys that it is handed."""
    model = make_model("llama")
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(remember_cache, with_kwargs=True)
        layer.self_attn.register_forward_hook(weigh_by_keys)
    assert not can_share(model)


def remember_cache(module: Any, arguments: Any, options: dict[str, Any]) -> None:
    module.last_cache = options.get("cache") or options.get("past_key_values")


def weigh_by_keys(module: Any, arguments: Any, result: Any) -> Any:
    layer = None if module.last_cache is None else module.last_cache.layers[module.layer_idx]
    return result if layer is None else (result[0] * (1 + layer.num_own), *result[1:])


def test_the_model_is_as_it_was_after_a_pass_and_after_a_failed_one(model: Model) -> None:
    runs = runs_of(model, [0, NUM_TOKENS])
    names = {config._attn_implementation for config in (model.config, model.model.config)}
    forward(model, input_ids=NEXT, cache=fork(runs, model.config, shares=True))
    with pytest.raises(IndexError):
        forward(model, input_ids=torch.tensor([[10**6]]), cache=fork(runs, model.config, shares=True))
    assert {config._attn_implementation for config in (model.config, model.model.config)} == names == {"sdpa"}


def test_another_thread_that_uses_the_model_meanwhile_sees_its_own_attention(model: Model) -> None:
    runs = runs_of(model, [0, NUM_TOKENS])
    expected = forward(model, input_ids=IDS)
    found: list[torch.Tensor] = []

    def use() -> None:
        found.append(model(input_ids=IDS, logits_to_keep=1).logits.detach())

    cache = fork(runs, model.config, shares=True)
    with over_parts(model, cache):
        assert model.config._attn_implementation == PARTS_ATTENTION
        assert attention_name(model) == "sdpa", "what a model is does not change by being used"
        other = threading.Thread(target=use)
        other.start()
        other.join()
        model(input_ids=NEXT, position_ids=torch.arange(NUM_TOKENS, NUM_TOKENS + 3)[None], **{CACHE: cache})
    assert torch.equal(found[0], expected)


def test_two_engines_of_one_model_do_not_disturb_each_other(model: Model) -> None:
    """Each has a lock of its own; did one put attention back for both, a layer of the other would not see the past."""
    runs = runs_of(model, [0, NUM_TOKENS])
    expected = forward(model, input_ids=NEXT, cache=fork(runs, model.config, shares=True))
    start = threading.Barrier(4)
    found: list[torch.Tensor] = []

    def use() -> None:
        start.wait()
        for _ in range(20):
            found.append(forward(model, input_ids=NEXT, cache=fork(runs, model.config, shares=True)))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert all(torch.equal(logits, expected) for logits in found)


def test_models_that_share_a_configuration_do_not_take_it_from_each_other(model: Model) -> None:
    """A pass of one that ends while the other computes must leave what the other needs."""
    other = type(model)(model.config).eval()
    runs, others = runs_of(model, [0, NUM_TOKENS]), runs_of(other, [0, NUM_TOKENS])
    expected = forward(model, input_ids=NEXT, cache=fork(runs, model.config, shares=True))
    positions = torch.arange(NUM_TOKENS, NUM_TOKENS + 3)[None]
    cache = fork(runs, model.config, shares=True)
    with over_parts(model, cache):
        thread = threading.Thread(
            target=lambda: forward(other, input_ids=NEXT, cache=fork(others, model.config, shares=True))
        )
        thread.start()
        thread.join()
        got = model(input_ids=NEXT, position_ids=positions, logits_to_keep=1, **{CACHE: cache}).logits.detach()
    assert torch.equal(got, expected)
    assert model.config._attn_implementation == "sdpa"


def test_a_layer_that_did_not_attend_to_the_past_is_an_error(model: Model) -> None:
    runs = runs_of(model, [0, NUM_TOKENS])

    def pass_with_its_attention_set_back() -> None:
        with over_parts(model, fork(runs, model.config, shares=True)):
            model.config._attn_implementation = "sdpa"  # by somebody else
            model(input_ids=NEXT)

    with pytest.raises(EngineError, match="0 of 2 layers attended"):
        pass_with_its_attention_set_back()


# Packs


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_rows_and_the_pack_are_the_same_tokens(lengths: list[int]) -> None:
    rows = Rows.of(lengths, "cpu")
    total = sum(lengths)
    assert rows.slots.shape == (len(lengths) * max(lengths),)
    assert torch.equal(rows.slots[rows.places], torch.arange(total))
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        row = rows.slots[i * max(lengths) : i * max(lengths) + length]
        assert row.tolist() == list(range(start, start + length))


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, NUM_TOKENS - 1), max_size=2, unique=True).map(sorted),
)
def test_a_pack_over_parts_scores_as_each_member_alone_over_one_past(
    make_model: Callable[..., Model], lengths: list[int], cuts: list[int]
) -> None:
    """Members of like length go as rows, one long one among short ones under a mask: both are drawn."""
    model = make_model("llama")
    labels = LabelSet(("a", "b", "c"), ((5, 6), (5, 7), (8,)), (1,))
    suffixes = [IDS[0, i : i + n].tolist() for i, n in enumerate(lengths)]
    runs = runs_of(model, [0, *cuts, NUM_TOKENS])
    before = copies(runs)
    packed = score_pack(model, runs, suffixes, labels, label_tries(labels, 100))
    for suffix, ours in zip(suffixes, packed, strict=True):
        gathered = fork(runs, model.config)
        row = forward(model, input_ids=torch.tensor([suffix]), cache=gathered)[0, -1]
        assert torch.allclose(ours.row, row, atol=1e-3)
        log = torch.log_softmax(row.double(), -1)
        after = torch.log_softmax(forward(model, input_ids=torch.tensor([[5]]), cache=gathered)[0, -1].double(), -1)
        expected = torch.stack([log[5] + after[6], log[5] + after[7], log[8]])
        assert torch.allclose(ours.scores, expected, atol=1e-3)
    assert same(runs, before)


@pytest.fixture(params=[0, 10**6], ids=["shared", "gathered"])
def past_is_shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways that a request may take, whatever the length of its past."""
    monkeypatch.setattr("cachestack.engines.transformers.attention.SHORT_PAST_TOKENS", request.param)
    return bool(request.param == 0)


@pytest.fixture
def always_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachestack.engines.transformers.attention.SHORT_PAST_TOKENS", 0)


# Warm equals cold, on the real model


def test_cold_warm_and_a_pack_of_one_are_equal_bit_for_bit(
    local_engine: TransformersEngine, past_is_shared: bool
) -> None:
    loaded = local_engine.loaded
    ids = loaded.tokenizer("You are a help desk. Answer in one word.\nWhere is my card? Answer:")["input_ids"]
    at = 9
    cold = Passes(loaded, (), forkable=True)
    cold.feed(ids[:at], wants_logits=False)
    run = cold.keep(0, at, None)
    expected = cold.feed(ids[at:])
    assert can_share(loaded.model)
    for _ in range(2):
        warm = Passes(loaded, (run,), forkable=True)
        assert torch.equal(warm.feed(ids[at:]), expected)
        assert (warm.copied_bytes == 0) == past_is_shared
    labels = LabelSet(("a", "b"), ((400,), (500,)))
    (scored,) = score_pack(loaded.model, (run,), [ids[at:]], labels)
    assert torch.equal(scored.row, expected)
    whole = forward(loaded.model, input_ids=torch.tensor([ids]))[0, -1]
    assert torch.allclose(whole, expected, atol=1e-3)
    assert int(whole.argmax()) == int(expected.argmax())


@pytest.mark.usefixtures("past_is_shared")
def test_a_part_of_a_longer_run_is_read_as_a_run_of_its_own(local_engine: TransformersEngine) -> None:
    """A narrowed view has other strides; not a bit of the result depends on them."""
    loaded = local_engine.loaded
    ids = list(range(1000, 1060))
    (long,) = runs_of(loaded.model, [0, 60], torch.tensor([ids]))
    part = KVRun(long.payload, 0, 40, long.num_bytes)
    alone = run_of(
        KVTensors(tuple((k[..., :40, :].clone(), v[..., :40, :].clone()) for k, v in long.payload.layers)), 0
    )
    one, other = (Passes(loaded, (run,), forkable=True).feed(ids[40:]) for run in (part, alone))
    assert torch.equal(one, other)


# What is copied


def test_a_short_past_is_gathered_for_one_and_shared_by_many(model: Model) -> None:
    assert not shares_past(model, SHORT_PAST_TOKENS)
    assert shares_past(model, SHORT_PAST_TOKENS + 1)
    assert shares_past(model, 1, num_members=2)


@pytest.mark.usefixtures("always_shared")
def test_a_hit_copies_nothing_and_gathering_is_counted(model: Model) -> None:
    runs = runs_of(model, [0, 15, NUM_TOKENS])
    loaded = as_loaded(model, None)
    passes = Passes(loaded, runs, forkable=True)
    passes.feed([11, 12, 13])
    assert passes.copied_bytes == 0
    assert [len(layer.parts) for layer in passes.cache.layers] == [2, 2]
    passes.begin_decoding()
    passes.feed([14])
    past = (NUM_TOKENS + 3) * BYTES_A_TOKEN  # the shared past and the three tokens before, brought together once
    assert passes.copied_bytes == past
    for token in range(MIN_ROOM_TOKENS - 1):
        passes.feed([token])
    assert passes.copied_bytes == past


@pytest.mark.usefixtures("always_shared")
def test_a_long_past_stays_where_it_is_while_the_answer_grows(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachestack.engines.transformers.decode.GATHERED_TOKENS", NUM_TOKENS - 1)
    assert GATHERED_TOKENS > 1000
    runs = runs_of(model, [0, NUM_TOKENS])
    passes = Passes(as_loaded(model, None), runs, forkable=True)
    gathered = fork(runs, model.config)
    passes.feed([11, 12, 13])
    forward(model, input_ids=NEXT, cache=gathered)
    passes.begin_decoding()
    for token in range(20):
        expected = forward(model, input_ids=torch.tensor([[token]]), cache=gathered)[0, -1]
        assert torch.allclose(passes.feed([token]), expected, atol=1e-3)
    assert passes.cache.num_shared == NUM_TOKENS
    assert passes.copied_bytes == 3 * BYTES_A_TOKEN  # its own three tokens, moved once to where there is room


def test_many_parts_are_joined_once_and_the_longest_left_alone(model: Model) -> None:
    edges = [0, 20, 22, 26, 29, 35, NUM_TOKENS]
    runs = runs_of(model, edges)
    cache = fork(runs, model.config, shares=True)
    forward(model, input_ids=NEXT, cache=cache)
    layer = cache.layers[0]
    assert [k.shape[-2] for k, _ in layer.parts] == [20, 6, 5, 9]
    assert layer.parts[0][0].data_ptr() == runs[0].payload.layers[0][0].data_ptr()
    assert cache.copied_bytes == 9 * BYTES_A_TOKEN
    forward(model, input_ids=NEXT, cache=cache)
    assert cache.copied_bytes == (9 + 3) * BYTES_A_TOKEN


def test_kept_in_another_precision_the_past_is_converted_as_it_is_gathered_and_counted_once(model: Model) -> None:
    (run,) = runs_of(model, [0, NUM_TOKENS])
    cache = fork((run_of(run.payload.as_dtype("bfloat16"), 0),), model.config)
    forward(model, input_ids=NEXT, cache=cache)
    assert cache.layers[0].values.dtype == torch.float32
    assert cache.copied_bytes == NUM_TOKENS * BYTES_A_TOKEN


def test_parts_in_another_order_are_not_cut(model: Model) -> None:
    """Joining leaves the longest parts first: their keys know their positions, but a run of them would lie."""
    cache = fork(runs_of(model, [0, 2, 6, 20, 22, 31, NUM_TOKENS]), model.config, shares=True)
    forward(model, input_ids=NEXT, cache=cache)
    with pytest.raises(AssertionError, match="another order"):
        cut(cache, 0, NUM_TOKENS + 3)
    assert cut(cache, NUM_TOKENS, NUM_TOKENS + 3).num_tokens == 3


def test_going_back_leaves_the_tokens_before(model: Model) -> None:
    runs = runs_of(model, [0, NUM_TOKENS])
    for shares in (True, False):
        cache = fork(runs, model.config, shares=shares)
        cache.reserve(7)
        forward(model, input_ids=NEXT, cache=cache)
        copied = cache.copied_bytes
        expected = forward(model, input_ids=IDS[:, :4], cache=cache)
        cache.truncate(3)
        assert cache.get_seq_length() == NUM_TOKENS + 3
        assert torch.equal(forward(model, input_ids=IDS[:, :4], cache=cache), expected)
        assert cache.copied_bytes == copied, "what was reserved is enough"
        with pytest.raises(AssertionError, match="cannot go back"):
            cache.truncate(8)


# Kept in another precision


@pytest.mark.usefixtures("past_is_shared")
def test_kept_in_bfloat16_cold_still_equals_warm_and_memory_is_half(local_engine: TransformersEngine) -> None:
    loaded = local_engine.loaded
    ids = loaded.tokenizer("You are a help desk. Answer in one word.\nWhere is my card? Answer:")["input_ids"]
    at = 9
    cold, exact = Passes(loaded, (), forkable=True), Passes(loaded, (), forkable=True)
    for passes in (cold, exact):
        passes.feed(ids[:at], wants_logits=False)
    run, full = cold.keep(0, at, "bfloat16"), exact.keep(0, at, None)
    assert run.payload.dtype == "bfloat16"
    assert 2 * run.num_bytes == full.num_bytes
    expected = cold.feed(ids[at:])
    warm = Passes(loaded, (run,), forkable=True)
    assert torch.equal(warm.feed(ids[at:]), expected)
    assert warm.copied_bytes == full.num_bytes, "brought into the model's precision, and counted"
    rounded = float((exact.feed(ids[at:]) - expected).abs().max())
    assert 0 < rounded < 1.0
