"""The layer's decisions: what may be reused, where a prefill is split, what is kept, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cachestack.decisions import Bypass, Hit, Miss, Partial, Reason
from cachestack.engines.base import Boundary, Computed, KVRun, Prompt
from cachestack.policy import FallbackPolicy, PrefixPolicy
from cachestack.prefix.base import Published
from cachestack.prefix.layer import PrefixLayer, PrefixPlan
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Generation

IDS = tuple(range(200))
SYSTEM, HISTORY = Boundary(40, "system"), Boundary(120, "history")
NOT_KEPT = PrefixPolicy(keep_conversations=False)


class Desk:
    """A layer, and an engine that computes what a plan asks for."""

    def __init__(self, max_bytes: int = 10**6, secret: bytes = b"secret") -> None:
        self.layer = PrefixLayer(BlockPool(max_bytes), secret)

    def plan(self, prompt: Prompt, **changes: Any) -> PrefixPlan:
        options: dict[str, Any] = {
            "fingerprint": "f",
            "model": "m",
            "tenant": "t",
            "policy": PrefixPolicy(),
            "fallback": FallbackPolicy(),
        }
        return self.layer.lookup(prompt, **(options | changes))

    def serve(self, prompt: Prompt, num_generated: int = 5, **changes: Any) -> tuple[PrefixPlan, Published | None]:
        plan = self.plan(prompt, **changes)
        report = self.layer.publish(plan, prompt, computed(plan, prompt, num_generated))
        plan.release()
        self.layer.pool.check_integrity()
        return plan, report


def computed(plan: PrefixPlan, prompt: Prompt, num_generated: int = 5, finite: bool = True) -> Computed:
    at = sum(r.num_tokens for r in plan.past)
    ids = (*prompt.ids, *range(9000, 9000 + num_generated - 1))
    runs = []
    for stop in plan.publish_at:
        end = len(ids) if stop == len(prompt.ids) else stop
        runs.append(KVRun(ids[at:end], at, end - at, end - at))
        at = end
    kept = tuple(runs) if finite else ()
    return Computed(Generation("text"), kept, ids=ids, finite=finite, detail={"dtype": "float32"})


def test_a_cold_prompt_is_split_at_its_boundary_and_a_warm_one_reuses_all_before_it() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    cold, report = desk.serve(prompt, policy=NOT_KEPT)
    assert isinstance(cold.lookup, Miss)
    assert cold.lookup.reason is Reason.PREFIX_COLD
    assert (cold.past, cold.publish_at) == ((), (40,))
    assert report == Published(Reason.PUBLISHED, num_tokens=40, num_bytes=40)
    other = Prompt((*IDS[:40], *range(700, 720)), (SYSTEM,))
    warm, report = desk.serve(other, policy=NOT_KEPT)
    assert isinstance(warm.lookup, Hit)
    assert warm.lookup.reason is Reason.PREFIX_FULL
    assert [r.num_tokens for r in warm.past] == [40]
    assert warm.publish_at == ()
    assert report is None
    assert warm.detail == {"matched_tokens": 40, "boundary": 40, "kind": "system", "prompt_tokens": 60}


def test_nothing_after_the_last_boundary_is_reused_so_that_warm_and_cold_make_the_same_passes() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    desk.serve(prompt)
    again, _ = desk.serve(prompt)
    assert sum(r.num_tokens for r in again.past) == 40


def test_a_part_of_the_prefix_is_reused_and_the_rest_of_it_published() -> None:
    desk = Desk()
    desk.serve(Prompt(IDS, (SYSTEM,)), policy=NOT_KEPT)
    longer = Prompt((*IDS[:30], *range(600, 650)), (Boundary(50, "system"),))
    plan, report = desk.serve(longer, policy=NOT_KEPT)
    assert isinstance(plan.lookup, Partial)
    assert plan.lookup.reason is Reason.PREFIX_PARTIAL
    assert [r.num_tokens for r in plan.past] == [30]
    assert plan.publish_at == (50,)
    assert report is not None
    assert report.num_tokens == 20
    assert isinstance(desk.plan(longer).lookup, Hit)


def test_a_conversation_keeps_its_answer_and_reuses_it_in_the_next_turn() -> None:
    desk = Desk()
    first = Prompt(IDS[:60], (SYSTEM,))
    plan, report = desk.serve(first, num_generated=11)
    assert plan.publish_at == (40, 60)
    assert report is not None
    assert report.num_tokens == 70
    history = (*IDS[:60], *range(9000, 9010), 1, 2)  # two tokens that close the answer were never computed
    second = Prompt((*history, *range(300, 320)), (SYSTEM, Boundary(72, "history")))
    plan, report = desk.serve(second)
    assert plan.lookup.reason is Reason.PREFIX_PARTIAL
    assert plan.detail["matched_tokens"] == 70
    assert plan.publish_at == (92,)  # not split for two tokens of history
    assert report is not None
    assert report.num_tokens == 22 + 4


def test_a_history_that_is_new_is_split_where_the_next_question_would_be() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM, HISTORY))
    plan, _ = desk.serve(prompt)
    assert plan.publish_at == (40, 120, 200)
    edited = Prompt((*IDS[:120], *range(700, 720)), (SYSTEM, HISTORY))
    again = desk.plan(edited)
    assert again.lookup.reason is Reason.PREFIX_FULL
    assert sum(r.num_tokens for r in again.past) == 120


def test_conversations_are_not_kept_where_the_policy_says_so() -> None:
    desk = Desk()
    plan, _ = desk.serve(Prompt(IDS, (SYSTEM, HISTORY)), policy=NOT_KEPT)
    assert plan.publish_at == (40,)
    assert plan.detail["boundary"] == 40
    plan, report = desk.serve(Prompt(IDS, (HISTORY,)), policy=NOT_KEPT)
    assert plan.lookup.reason is Reason.NO_BOUNDARY
    assert (plan.publish_at, report) == ((), None)


def test_a_prompt_without_a_boundary_runs_in_one_pass() -> None:
    desk = Desk()
    plan, report = desk.serve(Prompt(IDS, (), Reason.NO_BOUNDARY))
    assert isinstance(plan.lookup, Bypass)
    assert plan.lookup.reason is Reason.NO_BOUNDARY
    assert plan.past == ()
    assert plan.publish_at == (200,)  # kept for a next turn, which splits nothing
    assert report is not None
    plan, report = desk.serve(Prompt(IDS, (), Reason.NO_BOUNDARY), policy=NOT_KEPT)
    assert (plan.publish_at, report) == ((), None)


def test_the_first_turn_of_a_conversation_without_a_system_text_is_there_for_the_second() -> None:
    desk = Desk()
    desk.serve(Prompt(IDS[:50], (), Reason.NO_BOUNDARY), num_generated=11)
    second = Prompt((*IDS[:50], *range(9000, 9010), 1, 2, 3), (Boundary(62, "history"),))
    assert desk.plan(second).detail["matched_tokens"] == 60


@pytest.mark.parametrize(
    ("prompt", "changes", "reason", "detail"),
    [
        (Prompt(IDS, (SYSTEM,)), {"policy": PrefixPolicy(enabled=False)}, Reason.DISABLED, {}),
        (Prompt(IDS, (SYSTEM,)), {"unsupported": "a window"}, Reason.UNSUPPORTED_CACHE, {"why": "a window"}),
        (Prompt(IDS, (), Reason.NO_BOUNDARY), {}, Reason.NO_BOUNDARY, {"prompt_tokens": 200}),
        (
            Prompt(IDS, (Boundary(15, "system"),)),
            {},
            Reason.PREFIX_TOO_SHORT,
            {"boundary": 15, "min_tokens": 16},
        ),
        (
            Prompt(IDS, (), Reason.UNCLEAN_BOUNDARY, Boundary(38, "system")),
            {},
            Reason.UNCLEAN_BOUNDARY,
            {"prompt_tokens": 200, "nearest_clean": 38},
        ),
    ],
)
def test_a_bypass_says_why(prompt: Prompt, changes: dict[str, Any], reason: Reason, detail: dict[str, Any]) -> None:
    desk = Desk()
    plan = desk.plan(prompt, **changes)
    assert isinstance(plan.lookup, Bypass)
    assert plan.lookup.reason is reason
    assert plan.detail == detail
    assert plan.past == ()
    plan.release()
    assert desk.layer.peek(prompt, **_peeking(changes)) == plan.lookup


def _peeking(changes: dict[str, Any]) -> dict[str, Any]:
    options = {"fingerprint": "f", "tenant": "t", "policy": PrefixPolicy(), "fallback": FallbackPolicy()}
    return options | changes


@pytest.mark.parametrize("reason", [Reason.DISABLED, Reason.UNSUPPORTED_CACHE, Reason.UNCLEAN_BOUNDARY])
def test_what_is_off_unsupported_or_unclean_keeps_nothing(reason: Reason) -> None:
    desk = Desk()
    prompt = Prompt(IDS, (SYSTEM,), reason if reason is Reason.UNCLEAN_BOUNDARY else None)
    changes: dict[str, Any] = {}
    if reason is Reason.DISABLED:
        changes = {"policy": PrefixPolicy(enabled=False)}
    if reason is Reason.UNSUPPORTED_CACHE:
        changes = {"unsupported": "why"}
    plan, report = desk.serve(prompt, **changes)
    assert plan.lookup.reason is reason
    assert (plan.publish_at, report) == ((), None)
    assert desk.layer.sizes().num_segments == 0


def test_a_short_prefix_is_not_kept_by_itself_but_its_conversation_is() -> None:
    desk = Desk()
    plan, _ = desk.serve(Prompt(IDS, (Boundary(15, "system"),)))
    assert plan.publish_at == (200,)
    tiny, report = desk.serve(Prompt(IDS[:15], (Boundary(8, "system"),)))
    assert (tiny.publish_at, report) == ((), None)


def test_a_prefix_of_just_the_least_length_counts() -> None:
    desk = Desk()
    plan, _ = desk.serve(Prompt(IDS, (Boundary(16, "system"),)))
    assert plan.publish_at == (16, 200)
    assert desk.plan(Prompt(IDS, (Boundary(16, "system"),))).lookup.reason is Reason.PREFIX_FULL


def test_a_match_shorter_than_the_least_length_is_none() -> None:
    desk = Desk()
    desk.serve(Prompt(IDS, (SYSTEM,)))
    other = Prompt((*IDS[:15], *range(500, 600)), (SYSTEM,))
    plan = desk.plan(other)
    assert plan.lookup.reason is Reason.PREFIX_COLD
    assert plan.past == ()
    assert plan.detail["matched_tokens"] == 0
    assert desk.layer.sizes().num_leased == 0
    assert desk.layer.peek(other, **_peeking({})) == plan.lookup


def test_a_prefix_that_shares_only_its_template_s_first_tokens_with_another_is_kept() -> None:
    """More than half of it is there, but no look-up uses so short a match: were it refused, it would never be kept."""
    desk = Desk()
    boundary = Boundary(28, "system")
    desk.serve(Prompt((*range(15), *range(100, 120)), (boundary,)), policy=NOT_KEPT)
    prompt = Prompt((*range(15), *range(200, 220)), (boundary,))
    _, report = desk.serve(prompt, policy=NOT_KEPT)
    assert report == Published(num_tokens=28, num_bytes=28)
    assert desk.plan(prompt, policy=NOT_KEPT).lookup.reason is Reason.PREFIX_FULL


def test_a_match_that_is_too_short_to_be_used_is_no_use() -> None:
    """All prompts of a template begin alike; what happens to be kept first must not live on their looks."""
    desk = Desk()
    first = Prompt(IDS, (SYSTEM,))
    desk.serve(first, policy=NOT_KEPT, user="ann")
    desk.plan(Prompt((*IDS[:15], *range(600, 640)), (SYSTEM,)), policy=NOT_KEPT, user="bob")
    (prefix,) = desk.layer.sizes().prefixes
    assert (prefix.num_uses, prefix.num_users) == (0, 1)


def test_the_nearest_clean_place_is_used_where_the_policy_says_so() -> None:
    desk = Desk()
    unclean = Prompt(IDS, (HISTORY,), Reason.UNCLEAN_BOUNDARY, Boundary(38, "system"))
    backed_off = FallbackPolicy(unclean_boundary="nearest_clean")
    plan, _ = desk.serve(unclean, fallback=backed_off)
    assert plan.publish_at == (38, 120, 200)
    nothing_near = replace(unclean, boundaries=(), nearest_clean=None)
    assert desk.plan(nothing_near, fallback=backed_off).lookup.reason is Reason.UNCLEAN_BOUNDARY


def test_at_least_one_token_is_always_left_to_compute() -> None:
    desk = Desk()
    desk.serve(Prompt(IDS[:101], (Boundary(100, "mark"),)))
    for boundary in (99, 100):
        plan = desk.plan(Prompt(IDS[:100], (Boundary(boundary, "mark"),)))
        assert sum(r.num_tokens for r in plan.past) == 99
        assert plan.lookup.reason is Reason.PREFIX_FULL


def test_tenants_do_not_share() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    desk.serve(prompt, tenant="one")
    assert desk.plan(prompt, tenant="two").lookup.reason is Reason.PREFIX_COLD
    assert desk.plan(prompt, fingerprint="other weights", tenant="one").lookup.reason is Reason.PREFIX_COLD
    assert desk.plan(prompt, tenant="one").lookup.reason is Reason.PREFIX_FULL


def test_hashes_of_a_tenant_depend_on_the_secret() -> None:
    pool = BlockPool(10**6)
    one, other = Desk(secret=b"1"), Desk(secret=b"2")
    one.layer.pool = other.layer.pool = pool
    one.serve(Prompt(IDS, (SYSTEM,)))
    assert other.plan(Prompt(IDS, (SYSTEM,))).lookup.reason is Reason.PREFIX_COLD


def test_values_that_are_not_finite_are_not_kept() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    plan = desk.plan(prompt)
    report = desk.layer.publish(plan, prompt, computed(plan, prompt, finite=False))
    assert report is not None
    assert report.reason is Reason.NOT_FINITE
    assert desk.layer.sizes().num_segments == 0


@pytest.mark.parametrize(("fingerprint", "kept"), [(None, True), ("f", True), ("other", False), ("", False)])
def test_kv_of_another_model_than_was_looked_up_is_not_kept(fingerprint: str | None, kept: bool) -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    plan = desk.plan(prompt)
    report = desk.layer.publish(plan, prompt, replace(computed(plan, prompt), fingerprint=fingerprint))
    assert report is not None
    assert report.reason is (Reason.PUBLISHED if kept else Reason.MODEL_CHANGED)
    assert (desk.layer.sizes().num_segments > 0) is kept


def test_an_abort_keeps_nothing_and_ends_the_lease() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    desk.serve(prompt)
    before = desk.layer.sizes()
    plan = desk.plan(prompt)
    assert desk.layer.sizes().num_leased == 1
    plan.release()  # the stream was closed: nothing was computed, nothing is published
    plan.release()
    after = desk.layer.sizes()
    assert replace(after, prefixes=()) == replace(before, prefixes=())


def test_the_policy_s_limits_reach_the_pool() -> None:
    desk = Desk(max_bytes=210)
    limited = PrefixPolicy(max_bytes=50, keep_conversations=False)
    _, report = desk.serve(Prompt(IDS, (SYSTEM,)), policy=limited)
    assert report is not None
    assert report.reason is Reason.PUBLISHED
    other = Prompt(tuple(range(1000, 1100)), (Boundary(60, "system"),))
    _, report = desk.serve(other, policy=limited)
    assert report == Published(Reason.OVER_BUDGET, num_refused_tokens=60)
    assert report.detail == {"kept_tokens": 0, "refused_tokens": 60}
    skip = FallbackPolicy(memory_pressure="skip")
    _, report = desk.serve(Prompt(tuple(range(2000, 2200)), (Boundary(190, "system"),)), policy=NOT_KEPT, fallback=skip)
    assert report is not None
    assert report.reason is Reason.OVER_BUDGET
    assert desk.layer.sizes().num_evicted == 0


def test_the_policy_s_eviction_reaches_the_pool() -> None:
    """What is used most stays by value, and goes first where it was used longest ago."""
    for eviction, stays in (("value", True), ("lru", False)):
        desk = Desk(max_bytes=100)
        policy = PrefixPolicy(keep_conversations=False, eviction=eviction)
        for _ in range(4):
            desk.serve(Prompt(IDS, (SYSTEM,)), policy=policy)
        desk.serve(Prompt(tuple(range(1000, 1100)), (SYSTEM,)), policy=policy)
        desk.serve(Prompt(tuple(range(2000, 2100)), (SYSTEM,)), policy=policy)
        assert (desk.plan(Prompt(IDS, (SYSTEM,))).lookup.reason is Reason.PREFIX_FULL) is stays


def test_what_was_computed_before_an_invalidation_is_not_kept_after_it() -> None:
    for changes in ({"tenant": "t"}, {"tenant": "t", "user": "ann"}, {"tenant": None, "user": "ann"}):
        desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
        late, others = desk.plan(prompt, user="ann"), desk.plan(prompt, tenant="u", user="ben")
        desk.layer.invalidate(changes["tenant"], user=changes.get("user"))
        report = desk.layer.publish(late, prompt, computed(late, prompt))
        assert report == Published(Reason.INVALIDATED, num_refused_tokens=204)
        assert desk.layer.sizes().num_segments == 0
        report = desk.layer.publish(others, prompt, computed(others, prompt))
        assert report is not None
        assert report.reason is Reason.PUBLISHED
        _, report = desk.serve(prompt, user="ann")
        assert report is not None
        assert report.reason is Reason.PUBLISHED


def test_a_user_is_forgotten_and_what_others_share_stays() -> None:
    desk = Desk()
    desk.serve(Prompt((*IDS[:40], *range(500, 550)), (SYSTEM,)), user="ann")
    desk.serve(Prompt((*IDS[:40], *range(600, 650)), (SYSTEM,)), user="ben")
    assert desk.layer.invalidate("t", user="ann") == 1
    desk.layer.pool.check_integrity()
    sizes = desk.layer.sizes()
    assert sizes.num_tokens == 40 + 54
    assert [p.num_users for p in sizes.prefixes if p.num_tokens == 40] == [1]
    assert desk.layer.invalidate("t", user="ann") == 0


def test_time_saved_is_that_of_the_whole_prompt_less_that_of_the_rest() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    plan, _ = desk.serve(prompt)
    desk.layer.observe(plan, prompt, 2.0)  # 200 tokens in two passes
    again = desk.plan(prompt)
    assert desk.layer.saved_s(plan) == 0
    assert desk.layer.saved_s(again) == pytest.approx(0.4)
    assert desk.layer.costs.of("other weights").seconds(100) == 0


def test_a_peek_leases_nothing_and_says_what_a_look_up_would() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    assert desk.layer.peek(prompt, **_peeking({})) == Miss(
        Reason.PREFIX_COLD, {"matched_tokens": 0, "boundary": 40, "kind": "system", "prompt_tokens": 200}
    )
    desk.serve(prompt)
    seen = desk.layer.peek(prompt, **_peeking({}))
    plan = desk.plan(prompt)
    assert isinstance(seen, Hit)
    assert seen.value == 40
    assert (seen.reason, seen.detail) == (plan.lookup.reason, plan.detail)
    plan.release()
    longer = Prompt((*IDS[:30], *range(600, 650)), (Boundary(50, "system"),))
    seen = desk.layer.peek(longer, **_peeking({}))
    assert isinstance(seen, Partial)
    assert seen.value == 30
    assert desk.layer.sizes().num_leased == 0


def test_a_tenant_is_forgotten() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    desk.serve(prompt, tenant="one")
    desk.serve(prompt, tenant="two")
    assert desk.layer.invalidate("one") == 2
    assert desk.plan(prompt, tenant="one").lookup.reason is Reason.PREFIX_COLD
    assert desk.plan(prompt, tenant="two").lookup.reason is Reason.PREFIX_FULL


def test_what_is_kept_is_shown_by_model_and_dtype() -> None:
    desk = Desk()
    desk.serve(Prompt(IDS, (SYSTEM,)))
    (group,) = desk.layer.sizes().groups
    assert (group.model, group.dtype, group.tenant, group.num_tokens) == ("m", "float32", "t", 204)


def test_kv_of_one_precision_is_not_reused_in_another() -> None:
    desk, prompt = Desk(), Prompt(IDS, (SYSTEM,))
    rounded = NOT_KEPT.model_copy(update={"kv_dtype": "bfloat16"})
    assert desk.serve(prompt, policy=rounded)[0].kv_dtype == "bfloat16"
    exact, _ = desk.serve(prompt, policy=NOT_KEPT)
    assert (exact.lookup.reason, exact.kv_dtype) == (Reason.PREFIX_COLD, None)
    again, _ = desk.serve(prompt, policy=rounded)
    assert again.lookup.reason is Reason.PREFIX_FULL
    seen = desk.layer.peek(prompt, fingerprint="f", tenant="t", policy=rounded, fallback=FallbackPolicy())
    assert seen.reason is Reason.PREFIX_FULL
    assert {group.num_tokens for group in desk.layer.sizes().groups} == {80}
