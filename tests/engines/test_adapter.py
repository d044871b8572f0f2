"""The forward pass: logits kept, masks, positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from cachestack.engines.transformers.adapter import (
    attention_name,
    cache_argument,
    context_tokens,
    forward,
    takes_cache,
    takes_mask_4d,
    takes_packs,
)
from cachestack.engines.transformers.kv import cut, fork, run_of
from cachestack.errors import EngineError

IDS = torch.tensor([[3, 50, 7, 120, 9, 61, 33, 8]])
Make = Callable[..., Any]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_only_the_positions_asked_for_are_computed(make_model: Make, family: str) -> None:
    model = make_model(family)
    everything = forward(model, input_ids=IDS, keep_logits=0)
    assert everything.shape == (1, 8, 400)
    assert torch.allclose(forward(model, input_ids=IDS), everything[:, -1:], atol=1e-5)
    assert torch.allclose(forward(model, input_ids=IDS, keep_logits=3), everything[:, -3:], atol=1e-5)
    chosen = torch.tensor([1, 4])
    assert torch.allclose(forward(model, input_ids=IDS, keep_logits=chosen), everything[:, chosen], atol=1e-5)


def test_a_pass_without_a_cache_does_not_ask_for_one(make_model: Make) -> None:
    model = make_model("llama")
    with_cache = forward(model, input_ids=IDS, cache=fork((), model.config))
    assert torch.allclose(forward(model, input_ids=IDS), with_cache, atol=1e-5)


def test_tensors_can_be_changed_outside_of_a_pass(make_model: Make) -> None:
    """As those made under inference mode cannot."""
    model = make_model("llama")
    cache = fork((), model.config)
    logits = forward(model, input_ids=IDS, cache=cache)
    logits += 1
    cache.layers[0].keys[0, 0, 0, 0] = 2.0
    assert not logits.requires_grad
    assert not logits.is_inference()


def test_the_position_continues_after_the_cache(make_model: Make) -> None:
    model = make_model("gpt2")  # learned absolute positions: a wrong one changes everything
    cache = fork((), model.config)
    forward(model, input_ids=IDS[:, :5], cache=cache)
    implied = forward(model, input_ids=IDS[:, 5:], cache=fork((run_of(cut(cache, 0, 5), 0),), model.config))
    positions = torch.tensor([[5, 6, 7]])
    stated = forward(model, input_ids=IDS[:, 5:], position_ids=positions, cache=cache)
    assert torch.equal(implied, stated)
    assert torch.allclose(implied, forward(model, input_ids=IDS), atol=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_boolean_mask_in_four_dimensions_means_the_same_in_every_attention(make_model: Make, attention: str) -> None:
    """Two suffixes in one row over one past: each must see the past and itself, and nothing of the other."""
    model = make_model("llama", attn_implementation=attention)
    assert attention_name(model) == attention
    assert takes_mask_4d(model)
    past = fork((), model.config)
    forward(model, input_ids=IDS, cache=past)
    run = run_of(cut(past, 0, 8), 0)
    first, second = torch.tensor([[20, 21, 22]]), torch.tensor([[30, 31]])

    packed = torch.cat([first, second], dim=1)
    positions = torch.tensor([[8, 9, 10, 8, 9]])
    mask = torch.zeros(1, 1, 5, 13, dtype=torch.bool)
    mask[..., :8] = True
    mask[0, 0, :3, 8:11] = torch.ones(3, 3).tril().bool()
    mask[0, 0, 3:, 11:] = torch.ones(2, 2).tril().bool()
    got = forward(
        model,
        input_ids=packed,
        position_ids=positions,
        attention_mask=mask,
        cache=fork((run,), model.config),
        keep_logits=torch.tensor([2, 4]),
    )
    for at, suffix in enumerate((first, second)):
        alone = forward(model, input_ids=suffix, cache=fork((run,), model.config))
        assert torch.allclose(got[0, at], alone[0, 0], atol=1e-4)


def test_an_attention_without_such_masks_refuses_them(make_model: Make) -> None:
    model = make_model("llama")
    model.config._attn_implementation_internal = "flash_attention_2"
    assert not takes_mask_4d(model)
    with pytest.raises(EngineError, match=r"'flash_attention_2' takes no 4-D mask.*sdpa, eager"):
        forward(model, input_ids=IDS, attention_mask=torch.ones(1, 1, 8, 8, dtype=torch.bool))


def test_a_padding_mask_hides_padding(make_model: Make) -> None:
    model = make_model("llama")
    padded = torch.cat([torch.full((1, 3), 1), IDS], dim=1)
    mask = torch.tensor([[0] * 3 + [1] * 8])
    positions = torch.tensor([[0, 0, 0, *range(8)]])
    got = forward(model, input_ids=padded, attention_mask=mask, position_ids=positions)
    assert torch.allclose(got, forward(model, input_ids=IDS), atol=1e-4)


def test_the_context_is_found_under_its_several_names(make_model: Make, byte_tokenizer: Any) -> None:
    assert context_tokens(make_model("llama")) == 256
    assert context_tokens(make_model("gpt2", n_positions=64)) == 64
    bloom = transformers.BloomConfig(vocab_size=400, hidden_size=16, n_layer=1, n_head=2)
    bare = transformers.BloomForCausalLM(bloom)  # ALiBi: no limit of its own
    assert context_tokens(bare, byte_tokenizer) is None
    byte_tokenizer.model_max_length, before = 77, byte_tokenizer.model_max_length
    assert context_tokens(bare, byte_tokenizer) == 77
    byte_tokenizer.model_max_length = before


def test_the_cache_goes_by_the_name_the_model_knows(make_model: Make) -> None:
    model = make_model("llama")
    assert takes_cache(model)
    assert cache_argument(model) in ("cache", "past_key_values")


def test_models_that_count_positions_in_their_own_way_are_not_packed(make_model: Make) -> None:
    """RoBERTa begins behind its padding index when it is not told: told from zero, it computes something else."""
    for family in ("llama", "qwen2", "mistral", "gpt2"):
        assert takes_packs(make_model(family))
    size = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.RobertaConfig(**size, intermediate_size=64, is_decoder=True, max_position_embeddings=64)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    assert takes_mask_4d(model)
    assert not takes_packs(model)


def test_a_pass_that_keeps_nothing_is_handed_no_cache(make_model: Make) -> None:
    """Told not to use a cache, models still write into one that they are given."""
    model = make_model("llama")
    given: list[dict[str, Any]] = []
    model.register_forward_pre_hook(lambda _, __, options: given.append(options), with_kwargs=True)
    forward(model, input_ids=IDS)
    forward(model, input_ids=IDS, cache=fork((), model.config))
    name = cache_argument(model)
    assert [(name in options, options["use_cache"]) for options in given] == [(False, False), (True, True)]
