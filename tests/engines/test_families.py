"""Random models of several families: our decoding against Transformers' own, and warm against cold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.engines.base import KVRun, Prompt
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.kv import KVTensors
from cachestack.errors import EngineError
from cachestack.requests import Request, Sampling, as_messages

FAMILIES = ("llama", "gpt2", "qwen2", "mistral")
REQUEST = Request(as_messages("How do I reset my password?"), sampling=Sampling(max_new_tokens=24))
IDS = tuple(int(i) for i in torch.randint(3, 400, (48,), generator=torch.Generator().manual_seed(2)))
Make = Callable[..., TransformersEngine]


def equal(one: KVTensors, other: KVTensors) -> bool:
    pairs = zip((t for p in one.layers for t in p), (t for p in other.layers for t in p), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    ("family", "changes"), [*((f, {}) for f in FAMILIES), ("mistral", {"sliding_window": 8}), ("gpt2", {"n_head": 2})]
)
def test_greedy_decoding_is_that_of_transformers(
    make_engine: Make, drain: Callable[..., Any], family: str, changes: dict[str, Any]
) -> None:
    engine = make_engine(family, **changes)
    prompt = Prompt(IDS)
    loaded = engine.loaded
    with torch.no_grad():
        expected = loaded.model.generate(
            torch.tensor([IDS]), attention_mask=torch.ones(1, len(IDS)), max_new_tokens=24, do_sample=False
        )[0, len(IDS) :].tolist()
    streamed = drain(engine, REQUEST, prompt)
    assert streamed.text == loaded.tokenizer.decode(expected, skip_special_tokens=True).rstrip("\ufffd")
    assert streamed.computed.generation.usage.completion_tokens == len(expected)
    assert streamed.computed.ids == (*IDS, *expected[:-1])


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(st.integers(1, len(IDS) - 1), min_size=1, max_size=3, unique=True).map(sorted))
def test_warm_runs_equal_cold_ones_bit_for_bit(
    tiny_engine: Make, drain: Callable[..., Any], family: str, cuts: list[int]
) -> None:
    """Splits anywhere, so also with one token left, and at multiples of the block size."""
    engine = tiny_engine(family)
    prompt, end = Prompt(IDS), len(IDS)
    cold = drain(engine, REQUEST, prompt, (), (*cuts, end)).computed
    assert [r.start for r in cold.runs] == [0, *cuts]
    assert sum(r.num_tokens for r in cold.runs) == len(cold.ids)
    for num_runs in range(1, len(cold.runs)):
        past: tuple[KVRun, ...] = cold.runs[:num_runs]
        warm = drain(engine, REQUEST, prompt, past, (*cuts[num_runs:], end)).computed
        assert warm.ids == cold.ids
        assert warm.generation.text == cold.generation.text
        assert warm.generation.usage.cached_tokens == cuts[num_runs - 1]
        for ours, theirs in zip(warm.runs, cold.runs[num_runs:], strict=True):
            assert (ours.start, ours.num_tokens) == (theirs.start, theirs.num_tokens)
            assert equal(ours.payload, theirs.payload)


def test_a_sliding_window_is_computed_whole_and_keeps_nothing(make_engine: Make, drain: Callable[..., Any]) -> None:
    engine = make_engine("mistral", sliding_window=8)
    assert "DynamicSlidingWindowLayer" in (engine.unsupported_cache or "")
    assert drain(engine, REQUEST, Prompt(IDS)).computed.runs == ()
    with pytest.raises(EngineError, match="cannot be kept"):
        drain(engine, REQUEST, Prompt(IDS), (), (16,))


@pytest.mark.parametrize("publish_at", [(), (48,), (20,), (20, 48)])
def test_runs_end_where_asked(make_engine: Make, drain: Callable[..., Any], publish_at: tuple[int, ...]) -> None:
    engine = make_engine()
    computed = drain(engine, REQUEST, Prompt(IDS), (), publish_at).computed
    assert computed.finite
    ends = [r.start + r.num_tokens for r in computed.runs]
    expected = [len(computed.ids) if p == 48 else p for p in publish_at]
    assert ends == expected
    assert all(r.payload.num_tokens == r.num_tokens for r in computed.runs)
    assert all(r.payload.num_bytes == r.num_bytes for r in computed.runs)


@pytest.mark.parametrize(
    ("num_past", "publish_at"), [(0, (20, 20)), (0, (30, 20)), (0, (49,)), (20, (10,)), (20, (20,)), (48, ())]
)
def test_a_plan_that_breaks_the_contract_is_refused(
    make_engine: Make, drain: Callable[..., Any], num_past: int, publish_at: tuple[int, ...]
) -> None:
    engine = make_engine()
    whole = drain(engine, REQUEST, Prompt(IDS), (), (48,)).computed.runs[0]
    past = (KVRun(whole.payload, 0, num_past, whole.num_bytes),) if num_past else ()
    with pytest.raises(AssertionError):
        drain(engine, REQUEST, Prompt(IDS), past, publish_at)


def test_values_that_are_not_finite_are_an_error_and_give_no_runs(make_engine: Make, drain: Callable[..., Any]) -> None:
    engine = make_engine()
    with torch.no_grad():
        engine.loaded.model.model.embed_tokens.weight[IDS[5]] = float("nan")
    with pytest.raises(EngineError, match="not finite"):
        drain(engine, REQUEST, Prompt(IDS), (), (20, 48))
    assert drain(engine, REQUEST, Prompt(IDS[:5]), (), (5,)).computed.finite


def test_kept_values_that_are_not_finite_are_found_even_where_the_logits_are(
    make_engine: Make, drain: Callable[..., Any]
) -> None:
    """An infinite key that no query likes has no weight, so the answer is fine; it must not be kept all the same."""
    engine = make_engine("gpt2")
    real = engine.loaded.model.forward

    def spoil(*args: Any, **kwargs: Any) -> Any:
        output = real(*args, **kwargs)
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        cache.layers[1].values[0, 0, 0, 0] = float("inf")
        return output

    engine.loaded.model.forward = spoil
    request = Request(as_messages("Hi"), sampling=Sampling(max_new_tokens=1))
    computed = drain(engine, request, Prompt(IDS), (), (48,)).computed
    assert not computed.finite
    assert computed.runs == ()


def test_a_failure_in_the_model_is_an_engine_error(make_engine: Make, drain: Callable[..., Any]) -> None:
    with pytest.raises(EngineError, match="the model failed while it computed 3 tokens"):
        drain(make_engine(), REQUEST, Prompt((3, 4, 100_000)))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_of_one_token_and_an_answer_of_one(make_engine: Make, drain: Callable[..., Any], family: str) -> None:
    request = Request(as_messages("Hi"), sampling=Sampling(max_new_tokens=1))
    computed = drain(make_engine(family), request, Prompt((7,)), (), (1,)).computed
    assert computed.generation.usage.completion_tokens == 1
    assert computed.generation.finish_reason == "length"
    assert computed.ids == (7,)
    assert [(r.start, r.num_tokens) for r in computed.runs] == [(0, 1)]


def test_an_answer_is_shortened_to_what_the_context_holds(make_engine: Make, drain: Callable[..., Any]) -> None:
    engine = make_engine("gpt2", n_positions=50)  # learned positions: one too many would be an index error
    computed = drain(engine, REQUEST, Prompt(IDS)).computed
    assert computed.generation.usage.completion_tokens == 2
    assert computed.generation.finish_reason == "length"


def test_eager_attention_and_bfloat16_work_too(make_model: Callable[..., Any], byte_tokenizer: Any, drain: Any) -> None:
    model = make_model("llama", attn_implementation="eager").to(torch.bfloat16)
    engine = TransformersEngine.from_parts(model, byte_tokenizer)
    cold = drain(engine, REQUEST, Prompt(IDS), (), (20, 48)).computed
    assert cold.detail["dtype"] == "bfloat16"
    assert cold.runs[0].payload.dtype == "bfloat16"
    warm = drain(engine, REQUEST, Prompt(IDS), cold.runs[:1], (48,)).computed
    assert warm.generation.text == cold.generation.text
    assert equal(warm.runs[0].payload, cold.runs[1].payload)
