"""As `test_traps.py`, for how long answers live: popular ones, relative times, clocks, own state, the background."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full.trap_support import Trap, check, check_unspoilt

pytestmark = pytest.mark.full

LIFE, CORE, NEW = "semantic/freshness/life.py", "tests/core/test_freshness.py", "tests/core/test_revalidation.py"
UNITS = "tests/semantic/test_freshness.py"

TRAPS = (
    # 6: use prolongs a life without a bound
    Trap(
        "a use moves the end beyond the last moment",
        "entries.py",
        "min(self.ends_at_s, now_s + sliding_s)",
        "now_s + sliding_s",
        f"{CORE}::test_use_by_others_does_not_prolong_the_life_that_the_first_asked_for",
    ),
    Trap(
        "a sliding end has no last moment",
        "settling.py",
        "ends_at_s=0.0 if sliding_s is None else ends_at_s",
        "ends_at_s=1e12",
        f"{CORE}::test_use_by_others_does_not_prolong_the_life_that_the_first_asked_for",
    ),
    Trap(
        "a use moves the end of an entry whose policy has none that slides",
        "entries.py",
        "max(self.expires_at_s, min(self.ends_at_s, now_s + sliding_s))",
        "max(self.expires_at_s, now_s + sliding_s)",
        f"{UNITS}::test_an_entry_whose_policy_had_no_sliding_end_is_not_moved_by_a_use",
    ),
    Trap(
        "a use that is late puts back what was invalidated",
        "performer.py",
        "return self.store.prolong(entry.partition, entry.entry_id, self._clock(), sliding_s)",
        "return self.store.put(entry.used(self._clock(), sliding_s), None) and None",
        f"{CORE}::test_a_use_does_not_bring_back_what_was_invalidated",
    ),
    # 7: what looks again gives the usual life
    Trap(
        "the class is forgotten when the entry is met again",
        LIFE,
        "entry.is_live(now_s, min(max_age_s, class_ttl(entry, policy)))",
        "entry.is_live(now_s, max_age_s)",
        f"{CORE}::test_a_stricter_class_in_todays_policy_holds_for_what_is_kept_already",
    ),
    Trap(
        "a failed refresh begins the old answer's life anew",
        "revalidating.py",
        "            job.fate = _fate_of(error)\n        finally:",
        "            job.fate = _fate_of(error)\n"
        "            from dataclasses import replace\n\n"
        "            from cachestack.entries import Selector\n\n"
        "            for e in list(self._performer.store.select(Selector())):\n"
        "                anew = replace(e, expires_at_s=1e9, stale_until_s=1e9, created_at_s=1e6 + 100)\n"
        "                self._performer.store.put(anew)\n"
        "        finally:",
        f"{NEW}::test_a_failure_keeps_the_old_answer_until_its_bound_and_rests",
    ),
    Trap(
        "the new answer's life begins when it was ready",
        "pipeline.py",
        "            asked_at_s,\n            looked_up,\n            policy,\n            self.encoder_languages,",
        "            self.clock(),\n            looked_up,\n            policy,\n            self.encoder_languages,",
        f"{NEW}::test_the_old_answer_is_served_at_once_and_the_new_one_next",
    ),
    # the shortest of all bounds
    Trap(
        "the longest bound",
        LIFE,
        "min(bounds, key",
        "max(bounds, key",
        f"{UNITS}::test_a_life_is_the_shortest_of_all_bounds",
    ),
    Trap(
        "a fast-changing answer is kept like any other",
        LIFE,
        "            return section.fast_ttl_s",
        "            return math.inf",
        f"{CORE}::test_each_class_has_its_life_and_the_trace_says_why",
    ),
    Trap(
        "by meaning only the class of what was asked first counts",
        "semantic/layer.py",
        "max_age_s = min(life.ttl_s, max_served_age(asked.request, policy))",
        "max_age_s = max_served_age(asked.request, policy)",
        f"{CORE}::test_by_meaning_an_answer_that_was_vouched_for_serves_only_those_who_vouch_too",
    ),
    Trap(
        "what is old serves who takes nothing old, because it is stale",
        LIFE,
        "    if request.max_age_s is not None and not now_s < entry.created_at_s + request.max_age_s:\n"
        "        return False\n",
        "",
        f"{NEW}::test_a_requests_own_words_come_first",
    ),
    # relative times
    Trap(
        "tomorrow lives past midnight",
        LIFE,
        "return min(begin_s + self.ttl_s, self.until_s)",
        "return begin_s + self.ttl_s",
        f"{CORE}::test_an_answer_about_a_relative_time_ends_with_it",
    ),
    Trap(
        "tomorrow is stale past midnight",
        "settling.py",
        "stale_until_s=min(ends_at_s + stale_s, life.until_s)",
        "stale_until_s=ends_at_s + stale_s",
        f"{CORE}::test_an_answer_about_a_relative_time_ends_with_it",
    ),
    Trap(
        "tomorrow shares a call over midnight",
        "pipeline.py",
        "policy, life.until_s, user)",
        "policy, 0.0, user)",
        f"{CORE}::test_tomorrow_asked_today_and_asked_tomorrow_do_not_share_a_call",
    ),
    Trap(
        "every day has 24 hours",
        "semantic/freshness/relative.py",
        "return datetime.combine(_first_day_after(period, now), time.min, zone).timestamp()",
        "return now_s - now_s % 86_400 + 86_400",
        f"{UNITS}::test_a_day_may_have_23_hours",
    ),
    # clocks
    Trap(
        "an entry of the future lives twice",
        "entries.py",
        "min(CLOCK_SLACK_S, self.expires_at_s - begin_s)",
        "CLOCK_SLACK_S",
        f"{CORE}::test_an_entry_of_the_future_lives_no_longer_than_its_life_again",
    ),
    # own state
    Trap(
        "my order is yours",
        LIFE,
        "    if entry.principal == request.user:\n        return True\n",
        "    return True\n",
        f"{CORE}::test_ones_own_state_is_served_to_whoever_asked_it",
    ),
    Trap(
        "my order shares your call",
        "pipeline.py",
        "user = request.user if life.own_state else None",
        "user = None",
        f"{CORE}::test_two_users_who_ask_for_their_own_at_once_do_not_share_a_call",
    ),
    # the background
    Trap(
        "each asker makes a new answer",
        "revalidating.py",
        "if self._closed or effect.key in self._jobs:",
        "effect = Revalidate(effect.request, effect.by, object())\n            if self._closed:",
        f"{NEW}::test_many_askers_make_one_new_answer",
    ),
    Trap(
        "a refresh is answered by the stale answer",
        "semantic/layer.py",
        "        if not refreshing:\n",
        "        if True:\n",
        f"{NEW}::test_the_old_answer_is_served_at_once_and_the_new_one_next",
    ),
    Trap(
        "no limit holds for what is made in the background",
        "revalidating.py",
        "            with self.admit(job.effect.request) as charge:\n                run, engines = self._opened("
        "job.effect.request, anew(job.effect.by))\n                response",
        "            with free(job.effect.request) as charge:\n                run, engines = self._opened("
        "job.effect.request, anew(job.effect.by))\n                response",
        f"{NEW}::test_a_limit_forbids_it_and_pays_for_it",
    ),
    Trap(
        "closing leaves the thread",
        "revalidating.py",
        "            job.stop.set()\n",
        "",
        f"{NEW}::test_closing_does_not_wait_for_ever_for_an_engine_that_hangs",
    ),
    Trap(
        "closing leaves the task",
        "revalidating.py",
        "                    job.task.get_loop().call_soon_threadsafe(job.task.cancel)\n",
        "                    pass\n",
        f"{NEW}::test_closing_from_a_thread_cancels_the_tasks_of_a_loop",
    ),
)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_test_of_a_trap_fails_when_its_fix_is_taken_out(copy: Path, trap: Trap) -> None:
    check(copy, trap)


def test_the_tests_pass_on_the_copy_as_it_is(copy: Path) -> None:
    check_unspoilt(copy, [trap.test for trap in TRAPS])
