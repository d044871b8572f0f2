"""Each trap's test fails when its fix is taken out: the fix is taken out of a copy, and the test is run on that.

Those of the prefix layer and of the engine; the others are in `test_semantic_traps.py` and `test_index_traps.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full.trap_support import Trap, check, check_unspoilt

pytestmark = pytest.mark.full

ENGINE = "engines/transformers"


TRAPS = (
    Trap(
        "one cache for two requests",
        f"{ENGINE}/kv.py",
        "    return GrowingCache(layers, shares=shares)",
        "    return fork.__dict__.setdefault(str(runs and id(runs[0].payload)), GrowingCache(layers, shares=shares))",
        "tests/engines/test_kv.py::test_a_cache_handed_to_two_requests_gives_each_its_own_tokens",
    ),
    Trap(
        "two forks in one buffer",
        f"{ENGINE}/growing.py",
        "            self._buffers = None  # not ours alone any more: nothing is written there again",
        "            pass",
        "tests/engines/test_kv.py::test_going_back_does_not_write_over_what_was_handed_out",
    ),
    Trap(
        "a deep copy of the past",
        f"{ENGINE}/kv.py",
        "    return tensor.narrow(-2, 0, num_tokens) if num_tokens < tensor.shape[-2] else tensor",
        "    return tensor.narrow(-2, 0, num_tokens).clone()",
        "tests/engines/test_kv.py::test_a_fork_copies_nothing",
    ),
    Trap(
        "growth by a copy of everything at each token",
        f"{ENGINE}/growing.py",
        "room = max(MIN_ROOM_TOKENS, start // 4) if num_new == 1 else 0",
        "room = 0",
        "tests/engines/test_kv.py::test_decoding_copies_the_past_once_in_many_tokens",
    ),
    Trap(
        "nothing left to compute",
        "prefix/layer.py",
        "            limit = min(reuse[-1].position, length - 1)",
        "            limit = reuse[-1].position",
        "tests/prefix/test_layer.py::test_at_least_one_token_is_always_left_to_compute",
    ),
    Trap(
        "a mask shorter than prefix and suffix",
        f"{ENGINE}/packing.py",
        "mask = _suffix_mask(num_past - _num_shared(cache), lengths, device)",
        "mask = _suffix_mask(0, lengths, device)",
        "tests/classify/test_packing.py::test_eager_attention_is_given_the_same_masks",
    ),
    Trap(
        "positions that run on through a pack",
        f"{ENGINE}/packing.py",
        "torch.cat([torch.arange(num_past, num_past + n, device=device) for n in lengths])",
        "torch.arange(num_past, num_past + sum(lengths), device=device)",
        "tests/classify/test_packing.py::test_pack_equals_one_by_one_equals_whole",
    ),
    Trap(
        "shorter members that attend to what stands behind them",
        f"{ENGINE}/attention.py",
        "output, lse = _flash(query, key, value, 0.0, True, scale=scaling)\n        return _from_rows",
        "output, lse = _flash(query, key, value, 0.0, False, scale=scaling)\n        return _from_rows",
        "tests/engines/test_attention.py::test_a_pack_over_parts_scores_as_each_member_alone_over_one_past",
    ),
    Trap(
        "parts averaged without their weights",
        f"{ENGINE}/attention.py",
        "torch.sigmoid(other_lse - lse)",
        "torch.sigmoid(0 * lse)",
        "tests/engines/test_attention.py::test_parts_where_they_lie_give_what_one_gathered_past_gives",
    ),
    Trap(
        "a layer that misses the past in silence",
        f"{ENGINE}/attention.py",
        "if running.num_layers != len(cache.layers):",
        "if False:",
        "tests/engines/test_attention.py::test_a_layer_that_did_not_attend_to_the_past_is_an_error",
    ),
    Trap(
        "attention replaced by its name alone",
        f"{ENGINE}/attention.py",
        "_is_supported(model) and _agrees(model)",
        "_is_supported(model)",
        "tests/engines/test_attention.py::test_a_model_whose_attention_does_something_of_its_own_is_left_alone",
    ),
    Trap(
        "BOS twice",
        f"{ENGINE}/template.py",
        'return Rendered(text, "native")',
        'return Rendered(text, "native", add_special_tokens=True)',
        "tests/engines/test_template.py::test_bos_is_there_once",
    ),
    Trap(
        "a date in the template",
        f"{ENGINE}/template.py",
        'if "strftime_now" in source:',
        "if False:",
        "tests/engines/test_template.py::test_a_date_in_the_template_stands_still",
    ),
    Trap(
        "a word across the boundary",
        f"{ENGINE}/boundary.py",
        "            if not is_clean:",
        "            if False:",
        "tests/engines/test_boundary.py::test_an_unclean_boundary_is_refused_and_the_nearest_clean_one_is_named",
    ),
    Trap(
        "an adapter switched under its name",
        f"{ENGINE}/fingerprint.py",
        "    return found\n",
        "    return ()\n",
        "tests/engines/test_fingerprint.py::test_an_adapter_that_is_added_switched_and_taken_off_is_noticed",
    ),
    Trap(
        "a model changed under a stream",
        "prefix/layer.py",
        "if computed.fingerprint not in (None, plan.fingerprint):",
        "if False:",
        "tests/prefix/test_layer.py",
    ),
    Trap(
        "weights written to after loading",
        f"{ENGINE}/fingerprint.py",
        "add(tensor._version)",
        "add(0)",
        "tests/engines/test_fingerprint.py",
    ),
    Trap(
        "keys from Python's own hash",
        "keys.py",
        "parent = hashlib.sha256(parent + block).digest()",
        'parent = hash((parent, block)).to_bytes(8, "big", signed=True)',
        "tests/core/test_keys.py::test_keys_are_the_same_in_another_process",
    ),
    Trap(
        "hashes believed without the ids",
        "prefix/segments.py",
        "if _holds(segment, ids, stop):",
        "if True:",
        "tests/prefix/test_pool.py::test_ids_are_compared_where_hashes_lie",
    ),
    Trap(
        "values that are not finite",
        "prefix/layer.py",
        "refusal = None if computed.finite else Reason.NOT_FINITE",
        "refusal = None",
        "tests/prefix/test_layer.py",
    ),
    Trap(
        "not finite, found only in the logits",
        f"{ENGINE}/decode.py",
        "finite = all(run.payload.is_finite() for run in kept)",
        "finite = True",
        "tests/engines/test_families.py",
    ),
    Trap(
        "a first run that differs from its repeat",
        f"{ENGINE}/decode.py",
        "        self._runs.append(run)\n        self.cache = self._fork()\n",
        "        self._runs.append(run)\n",
        "tests/engines/test_attention.py::test_cold_warm_and_a_pack_of_one_are_equal_bit_for_bit",
    ),
    Trap(
        "cold not split where a hit would split",
        "prefix/layer.py",
        "            publish_at = _splits(reuse, matched, policy.min_tokens)",
        "            publish_at = []",
        "tests/prefix/test_layer.py",
    ),
    Trap(
        "one precision reused in another",
        "prefix/layer.py",
        'return fingerprint if kv_dtype is None else f"{fingerprint} {kv_dtype}"',
        "return fingerprint",
        "tests/prefix/test_layer.py::test_kv_of_one_precision_is_not_reused_in_another",
    ),
    Trap(
        "one tenant felt by another",
        "prefix/layer.py",
        "        salt = tenant_salt(self._secret, tenant)\n        kv_dtype",
        '        salt = b""\n        kv_dtype',
        "tests/prefix/test_layer.py::test_tenants_do_not_share",
    ),
    Trap(
        "a lease that outlives its request",
        "attempts.py",
        "        finally:\n            plan.release()",
        "        finally:\n            pass",
        "tests/core/test_local.py::test_threads_get_the_answers_that_they_would_get_alone",
    ),
    Trap(
        "a budget that one path ignores",
        "prefix/budget.py",
        "        if over <= 0 and over_own <= 0:",
        "        if over <= need and over_own <= 0:",
        "tests/prefix/test_pool.py",
    ),
    Trap(
        "a sliding window cropped, a state restored in part",
        f"{ENGINE}/kv.py",
        "    if others or not layers:",
        "    if not layers:",
        "tests/engines/test_kv.py",
    ),
    Trap(
        "several answers over a cache of one row",
        "pipeline.py",
        '("n > 1", sampling.n > 1)',
        '("n > 1", False)',
        "tests/core/test_local.py::test_what_the_in_process_engine_cannot_do",
    ),
    Trap(
        "history that is never kept",
        "prefix/layer.py",
        "        if keeps_all:\n            publish_at.append(length)",
        "        if keeps_all:\n            pass",
        "tests/prefix/test_layer.py",
    ),
    Trap(
        "a prefix under the least length",
        "prefix/layer.py",
        "long_enough = tuple(b for b in boundaries if b.position >= policy.min_tokens)",
        "long_enough = boundaries",
        "tests/prefix/test_layer.py::test_a_short_prefix_is_not_kept_by_itself_but_its_conversation_is",
    ),
    Trap(
        "float16 on the CPU",
        f"{ENGINE}/load.py",
        'if asked == "float16" and kind == "cpu":',
        "if False:",
        "tests/engines/test_load.py::test_float16_on_the_cpu_is_refused",
    ),
    Trap(
        "tensors of inference mode",
        f"{ENGINE}/adapter.py",
        "with torch.no_grad(), _attention",
        "with torch.inference_mode(), _attention",
        "tests/engines/test_adapter.py::test_tensors_can_be_changed_outside_of_a_pass",
    ),
    Trap(
        "logits of every position",
        f"{ENGINE}/adapter.py",
        '        arguments["logits_to_keep"] = keep_logits',
        '        arguments["logits_to_keep"] = 0',
        "tests/engines/test_adapter.py::test_only_the_positions_asked_for_are_computed",
    ),
)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_test_of_a_trap_fails_when_its_fix_is_taken_out(copy: Path, trap: Trap) -> None:
    check(copy, trap)


def test_the_tests_pass_on_the_copy_as_it_is(copy: Path) -> None:
    check_unspoilt(copy, ["tests/engines/test_kv.py"])
