"""Kept tensors, forks of them, and caches that grow in memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.engines.base import KVRun
from cachestack.engines.transformers.adapter import forward
from cachestack.engines.transformers.growing import MIN_ROOM_TOKENS, GrowingLayer
from cachestack.engines.transformers.kv import KVTensors, cut, fork, new_cache, run_of, unsupported_reason

NUM_TOKENS = 40
Model = Any


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Model]) -> Model:
    return make_model("llama")


@pytest.fixture(scope="module")
def ids() -> torch.Tensor:
    return torch.randint(3, 400, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def payload(model: Model, ids: torch.Tensor) -> KVTensors:
    cache = fork((), model.config)
    forward(model, input_ids=ids, cache=cache)
    return cut(cache, 0, NUM_TOKENS)


def copy_of(payload: KVTensors) -> list[torch.Tensor]:
    return [t.clone() for pair in payload.layers for t in pair]


def same(payload: KVTensors, copy: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip((t for p in payload.layers for t in p), copy, strict=True))


def test_a_fork_copies_nothing(model: Model, payload: KVTensors) -> None:
    cache = fork((run_of(payload, 0),), model.config)
    for layer, (keys, values) in zip(cache.layers, payload.layers, strict=True):
        assert layer.keys.data_ptr() == keys.data_ptr()
        assert layer.values.data_ptr() == values.data_ptr()
    assert cache.get_seq_length() == NUM_TOKENS


def test_a_fork_grows_without_touching_what_it_was_forked_from(model: Model, payload: KVTensors) -> None:
    before = copy_of(payload)
    cache = fork((run_of(payload, 0),), model.config)
    for token in range(10, 20):
        forward(model, input_ids=torch.tensor([[token]]), cache=cache)
    assert cache.get_seq_length() == NUM_TOKENS + 10
    assert same(payload, before)


def test_a_cache_handed_to_two_requests_gives_each_its_own_tokens(model: Model, payload: KVTensors) -> None:
    run = run_of(payload, 0)
    one, other = fork((run,), model.config), fork((run,), model.config)
    mixed: list[torch.Tensor] = []
    for token in (5, 6, 7):  # interleaved, so that shared memory would show
        mixed.append(forward(model, input_ids=torch.tensor([[token]]), cache=one))
        forward(model, input_ids=torch.tensor([[token + 100]]), cache=other)
    alone = fork((run,), model.config)
    for token, logits in zip((5, 6, 7), mixed, strict=True):
        assert torch.equal(forward(model, input_ids=torch.tensor([[token]]), cache=alone), logits)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(1, NUM_TOKENS - 1), max_size=4, unique=True).map(sorted))
def test_several_runs_are_the_same_past_as_one(
    cuts: list[int], model: Model, ids: torch.Tensor, payload: KVTensors
) -> None:
    whole = fork((run_of(payload, 0),), model.config)
    edges = [0, *cuts, NUM_TOKENS]
    runs = [run_of(cut(whole, a, b), a) for a, b in pairwise(edges)]
    assert [r.num_tokens for r in runs] == [b - a for a, b in pairwise(edges)]
    next_ids = torch.tensor([[11, 12, 13]])
    expected = forward(model, input_ids=next_ids, cache=whole)
    assert torch.equal(forward(model, input_ids=next_ids, cache=fork(runs, model.config)), expected)


def test_only_the_first_tokens_of_a_longer_payload_are_meant(
    model: Model, ids: torch.Tensor, payload: KVTensors
) -> None:
    before = copy_of(payload)
    part = KVRun(payload, start=0, num_tokens=25, num_bytes=payload.num_bytes)
    got = forward(model, input_ids=ids[:, 25:], cache=fork((part,), model.config))
    expected = forward(model, input_ids=ids)
    assert torch.allclose(got, expected, atol=1e-4)
    assert same(payload, before)


def test_runs_with_a_gap_are_refused(model: Model, payload: KVTensors) -> None:
    runs = (run_of(payload, 0), run_of(payload, NUM_TOKENS + 1))
    with pytest.raises(AssertionError, match="run starts at 41"):
        fork(runs, model.config)


def test_one_past_stands_before_many_rows(model: Model, ids: torch.Tensor, payload: KVTensors) -> None:
    rows = torch.tensor([[21, 22], [31, 32], [41, 42]])
    cache = fork((run_of(payload, 0),), model.config)
    assert cache.layers[0].keys.data_ptr() == payload.layers[0][0].data_ptr()
    got = forward(model, input_ids=rows, cache=cache)
    for row, logits in zip(rows, got, strict=True):
        alone = forward(model, input_ids=row[None], cache=fork((run_of(payload, 0),), model.config))
        assert torch.allclose(logits, alone[0], atol=1e-5)


def test_a_prefill_allocates_exactly_and_is_handed_out_without_a_copy(model: Model, ids: torch.Tensor) -> None:
    cache = fork((), model.config)
    forward(model, input_ids=ids, cache=cache)
    assert not cache.layers[0].has_room
    kept = cut(cache, 0, NUM_TOKENS)
    assert kept.layers[0][0].data_ptr() == cache.layers[0].keys.data_ptr()
    before = copy_of(kept)
    forward(model, input_ids=ids[:, :3], cache=cache)
    assert same(kept, before)


def test_what_is_cut_out_of_a_cache_with_room_is_a_copy(model: Model, ids: torch.Tensor) -> None:
    cache = fork((), model.config)
    forward(model, input_ids=ids, cache=cache)
    forward(model, input_ids=ids[:, :1], cache=cache)
    assert cache.layers[0].has_room
    for start, stop in ((0, NUM_TOKENS + 1), (0, NUM_TOKENS), (10, 20)):
        kept = cut(cache, start, stop)
        assert kept.num_tokens == stop - start
        keys = kept.layers[0][0]
        assert keys.is_contiguous()
        assert keys.untyped_storage().nbytes() == keys.numel() * keys.element_size()
        assert torch.equal(keys, cache.layers[0].keys[:, :, start:stop])
    kept = cut(cache, 0, NUM_TOKENS + 1)
    before = copy_of(kept)
    forward(model, input_ids=ids[:, 1:2], cache=cache)
    assert same(kept, before)


def test_decoding_copies_the_past_once_in_many_tokens(model: Model, ids: torch.Tensor) -> None:
    cache = fork((), model.config)
    forward(model, input_ids=ids, cache=cache)
    places = set()
    for _ in range(MIN_ROOM_TOKENS):
        forward(model, input_ids=ids[:, :1], cache=cache)
        places.add(cache.layers[0].keys.data_ptr())
    assert len(places) == 1


def test_bytes_are_those_of_the_tensors(payload: KVTensors) -> None:
    # 2 layers, keys and values, 2 heads, 8 dimensions, float32
    assert payload.num_bytes == 2 * 2 * 2 * 8 * 4 * NUM_TOKENS
    assert payload.dtype == "float32"
    assert run_of(payload, 3) == KVRun(payload, start=3, num_tokens=NUM_TOKENS, num_bytes=payload.num_bytes)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_value_that_is_not_finite_is_found(payload: KVTensors, value: float) -> None:
    assert payload.is_finite()
    layers = [list(pair) for pair in payload.layers]
    layers[1][1] = layers[1][1].clone()
    layers[1][1][0, 1, 17, 3] = value
    assert not KVTensors(tuple((k, v) for k, v in layers)).is_finite()


def test_large_finite_values_are_finite() -> None:
    largest = torch.full((1, 8, 512, 64), torch.finfo(torch.float32).max)
    assert KVTensors(((largest, largest),)).is_finite()


def test_a_growing_layer_can_be_cropped_and_reset_by_transformers(payload: KVTensors) -> None:
    before = copy_of(payload)
    keys, values = payload.layers[0]
    forked = GrowingLayer([(keys, values)])
    forked.reset()
    assert forked.get_seq_length() == 0
    assert same(payload, before)
    layer = GrowingLayer([(keys, values), (keys, values)])
    layer.crop(-50)
    assert layer.get_seq_length() == 2 * NUM_TOKENS - 50
    new = torch.ones(1, 2, 1, 8)
    grown, _ = layer.update(new, new)
    assert torch.equal(grown[:, :, :30], keys[:, :, :30])
    assert torch.equal(grown[:, :, 30:], new)
    layer.reset()
    assert layer.get_seq_length() == 0
    assert layer.update(new, new)[0].shape == (1, 2, 1, 8)


@pytest.mark.parametrize(
    ("family", "changes", "why"),
    [
        ("llama", {}, None),
        ("qwen2", {}, None),
        ("gpt2", {}, None),
        ("mistral", {}, None),
        ("mistral", {"sliding_window": 8}, "DynamicSlidingWindowLayer"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}}, "dynamic"),
    ],
)
def test_caches_that_cannot_be_kept_say_why(
    make_model: Callable[..., Model], family: str, changes: dict[str, Any], why: str | None
) -> None:
    reason = unsupported_reason(make_model(family, **changes))
    if why is None:
        assert reason is None
    else:
        assert reason is not None
        assert why in reason


def test_encoder_decoder_and_state_space_models_are_not_supported() -> None:
    import transformers

    t5 = transformers.T5Config(d_model=16, d_ff=16, num_layers=1, num_heads=2, d_kv=8, vocab_size=50)
    assert "encoder-decoder" in (unsupported_reason(transformers.T5ForConditionalGeneration(t5)) or "")
    mamba = transformers.MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=50, state_size=4)
    assert unsupported_reason(transformers.MambaForCausalLM(mamba)) is not None


def test_a_model_that_looks_ahead_is_not_supported() -> None:
    """BERT and its kin are opened as causal models too, and then each token sees those that follow."""
    import transformers

    size = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    for is_decoder in (False, True):
        config = transformers.BertConfig(**size, intermediate_size=64, is_decoder=is_decoder)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        assert unsupported_reason(model) == (
            None if is_decoder else "BertLMHeadModel is not set up as a decoder: its tokens see those that follow"
        )


def test_going_back_does_not_write_over_what_was_handed_out(model: Model, ids: torch.Tensor) -> None:
    """After a second pass the keys are in memory that is exactly full: it is handed out as it is."""
    cache = fork((), model.config)
    forward(model, input_ids=ids[:, :10], cache=cache)
    forward(model, input_ids=ids[:, 10:20], cache=cache)
    kept = cut(cache, 0, 20)
    before = copy_of(kept)
    cache.truncate(10)
    forward(model, input_ids=ids[:, :5], cache=cache)
    assert same(kept, before)


def test_a_cache_as_transformers_makes_it_knows_the_model_s_layers(make_model: Callable[..., Model]) -> None:
    sliding = new_cache(make_model("mistral", sliding_window=8).config)
    assert [layer.is_sliding for layer in sliding.layers] == [True, True]
