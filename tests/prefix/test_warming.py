"""Warm-up with the embedded model: what is ready, what the next request finds, what is said where nothing can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cachestack.decisions import Layer, Reason, Response
from cachestack.errors import ContextTooLong, RequestError, UsageError
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.stack import CacheStack
from cachestack.stats import Stats
from cachestack.stores.memory import MemoryStore
from cachestack.warming import Warmed

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine

SYSTEM = "Tu es le service d'aide d'ACME. Réponds en une phrase courte, s'il te plaît. On est ouvert de 9 h à 17 h."
SHOTS = [
    {"role": "system", "content": "Name the topic of the message in one word, please, and nothing else."},
    {"role": "user", "content": "My card was declined."},
    {"role": "assistant", "content": "billing"},
    {"role": "user", "content": "The app crashes."},
    {"role": "assistant", "content": "technical"},
]
MIB = 1024 * 1024
MakeStack = Callable[..., CacheStack]


@pytest.fixture
def make_stack(local_engine: TransformersEngine) -> Iterator[MakeStack]:
    made = []

    def make(policies: str = "", max_bytes: int = 64 * MIB) -> CacheStack:
        stack = CacheStack(
            engines={"local": local_engine},
            store=MemoryStore(lambda: 1000.0),
            index=None,
            encoder=None,
            prefix=PrefixLayer(BlockPool(max_bytes, clock=lambda: 7.0), secret=b"test"),
            policies=PolicySet.parse(policies, "test policy"),
            stats=Stats(),
            clock=lambda: 1000.0,
        )
        made.append(stack)
        return stack

    yield make
    for stack in made:
        stack.close()


def ask(stack: CacheStack, prompt: Any, **options: Any) -> tuple[Response, Reason]:
    response = stack.chat(prompt, max_new_tokens=6, store=False, lookup=False, **options)
    step = response.trace.step(Layer.PREFIX)
    assert step is not None
    return response, step.reason


def runs_of(stack: CacheStack) -> list[Any]:
    return [segment.run for segment in stack._prefix.pool._segments]


@pytest.mark.parametrize(
    ("warmed_with", "asked", "options"),
    [
        (None, "Où est mon colis ?", {"system": SYSTEM}),
        (SHOTS, [*SHOTS, {"role": "user", "content": "I cannot log in."}], {"stable_messages": 5}),
        (SHOTS, [*SHOTS, {"role": "user", "content": "I cannot log in."}], {}),
        ("Where is my parcel?", "😀 And now?", {"system": SYSTEM}),
    ],
)
def test_the_next_request_is_a_full_hit_and_equals_a_cold_one_bit_for_bit(
    make_stack: MakeStack, local_engine: TransformersEngine, warmed_with: Any, asked: Any, options: dict[str, Any]
) -> None:
    import torch

    from cachestack.engines.transformers.decode import Passes

    warm, cold = make_stack(), make_stack()
    warmed = warm.warm(warmed_with, **options)
    assert (warmed.reason, warmed.reused_tokens) == (Reason.PUBLISHED, 0)
    assert warmed.num_tokens == warmed.computed_tokens > 16
    assert warmed.num_bytes == warm.memory().num_bytes
    ready = runs_of(warm)
    (first, found), (plain, found_cold) = ask(warm, asked, **options), ask(cold, asked, **options)
    assert (found, found_cold) == (Reason.PREFIX_FULL, Reason.PREFIX_COLD)
    assert first.usage.cached_tokens == warmed.num_tokens
    assert first.text == plain.text
    logits = []
    for runs in (ready, [run for run in runs_of(cold) if run.start + run.num_tokens <= warmed.num_tokens]):
        passes = Passes(local_engine.loaded, runs, forkable=True)
        logits.append(passes.feed([5, 6, 7, 8]))
    assert torch.equal(*logits)
    step = first.trace.step(Layer.DECODE)
    assert step is not None
    assert "saved_s" in step.detail


def test_a_second_warm_up_computes_nothing_and_another_tenant_s_computes_all(make_stack: MakeStack) -> None:
    stack = make_stack()
    first = stack.warm(system=SYSTEM, tenant="acme")
    again = stack.warm(system=SYSTEM, tenant="acme")
    assert (again.reason, again.computed_tokens) == (Reason.PREFIX_FULL, 0)
    assert (again.num_tokens, again.num_bytes) == (first.num_tokens, first.num_bytes)
    assert again.saved_s > 0
    assert stack.warm(system=SYSTEM, tenant="other").computed_tokens == first.num_tokens
    assert stack.stats().by_tenant["acme"].tokens_prefilled == first.num_tokens
    assert stack.stats().by_tenant["acme"].requests == 0


def test_a_longer_prefix_continues_a_shorter_one(make_stack: MakeStack) -> None:
    stack = make_stack()
    short = stack.warm(SHOTS[:1])
    longer = stack.warm(SHOTS)
    assert longer.reused_tokens == short.num_tokens
    assert longer.num_tokens == short.num_tokens + longer.computed_tokens
    assert longer.num_bytes == stack.memory().num_bytes


@pytest.mark.parametrize(
    ("policies", "prompt", "options", "reason"),
    [
        ("", "Hello?", {}, Reason.NO_BOUNDARY),
        ("", None, {"system": "Short."}, Reason.PREFIX_TOO_SHORT),
        ("default: {prefix: {enabled: false}}", None, {"system": SYSTEM}, Reason.DISABLED),
        ("default: {prefix: {max_bytes: 1000}}", None, {"system": SYSTEM}, Reason.OVER_BUDGET),
    ],
)
def test_where_nothing_can_be_kept_it_says_why(
    make_stack: MakeStack, policies: str, prompt: Any, options: dict[str, Any], reason: Reason
) -> None:
    stack = make_stack(policies)
    warmed = stack.warm(prompt, pin_s=60, **options)
    assert warmed.reason is reason
    assert (warmed.num_tokens, warmed.num_bytes, warmed.pinned_until) == (0, 0, None)
    assert stack.memory().num_segments == stack.memory().num_leased == 0


def test_a_pin_is_held_or_refused_with_a_reason(make_stack: MakeStack) -> None:
    stack = make_stack("tenants: {small: {prefix: {max_pinned_bytes: 1000}}}")
    assert stack.warm(system=SYSTEM, pin_s=60).pinned_until == 1060
    (prefix,) = stack.memory().prefixes
    assert (prefix.pinned_for_s, prefix.num_uses) == (60, 0)
    refused = stack.warm(system=SYSTEM, tenant="small", pin_s=60)
    assert (refused.reason, refused.pin_reason) == (Reason.PUBLISHED, Reason.PIN_OVER_BUDGET)
    assert refused.pinned_until is None


def test_a_pool_s_pinned_half_is_never_exceeded(make_stack: MakeStack) -> None:
    stack = make_stack(max_bytes=3 * MIB)
    outcomes = [stack.warm(system=f"{n} {SYSTEM}", pin_s=60).pin_reason for n in range(3)]
    assert Reason.PIN_OVER_BUDGET in outcomes
    assert stack.memory().num_pinned_bytes <= 1.5 * MIB
    stack._prefix.pool.check_integrity()


@pytest.mark.parametrize("pin_s", [0, -1, float("nan"), float("inf"), "a day"])
def test_a_pin_for_no_time_is_refused(make_stack: MakeStack, pin_s: Any) -> None:
    with pytest.raises(UsageError, match="pin_s must be a positive number"):
        make_stack().warm(system=SYSTEM, pin_s=pin_s)


def test_what_a_request_would_raise_a_warm_up_raises(make_stack: MakeStack, tmp_path: Path) -> None:
    stack = make_stack()
    with pytest.raises(ContextTooLong):
        stack.warm(system="word " * 9000)
    with pytest.raises(RequestError):
        stack.warm()
    assert stack.memory().num_leased == 0
    with (
        CacheStack.without_engine(encoder="none", home=tmp_path) as bare,
        pytest.raises(Exception, match="engine"),
    ):
        bare.warm(system=SYSTEM)


def test_a_user_s_kv_goes_with_the_user(make_stack: MakeStack) -> None:
    stack = make_stack()
    stack.warm(system=SYSTEM)
    ask(stack, "Where is my parcel?", system=SYSTEM, user="ann")
    shared = stack.memory().num_tokens
    stack.invalidate(tenant="default", user="ann")
    kept = stack.memory().num_tokens
    assert 0 < kept < shared
    assert ask(stack, "Where is my parcel?", system=SYSTEM, user="ben")[1] is Reason.PREFIX_FULL
    stack.invalidate(user="ben")
    assert stack.memory().num_tokens == kept
    stack._prefix.pool.check_integrity()


def test_a_warm_up_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Warmed(Reason.PUBLISHED).num_tokens = 5  # type: ignore[misc]


def test_kv_kept_in_bfloat16_takes_half_the_memory_and_warm_still_equals_cold(make_stack: MakeStack) -> None:
    policy = "default: {prefix: {kv_dtype: bfloat16}}"
    half, warmed, full = make_stack(policy), make_stack(policy), make_stack()
    cold, reason = ask(half, "Quand ouvrez-vous ?", system=SYSTEM)
    assert reason is Reason.PREFIX_COLD
    assert {group.dtype for group in half.memory().groups} == {"bfloat16"}
    ready = warmed.warm(system=SYSTEM)
    assert full.warm(system=SYSTEM).num_bytes == 2 * ready.num_bytes
    warm, reason = ask(warmed, "Quand ouvrez-vous ?", system=SYSTEM)
    assert reason is Reason.PREFIX_FULL
    assert warm.text == cold.text
    step = warm.trace.step(Layer.DECODE)
    assert step is not None
    assert step.detail["dtype"] == "bfloat16"
    assert step.detail["copied_bytes"] >= 2 * ready.num_bytes, "brought into the model's precision for each request"
