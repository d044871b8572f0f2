"""As `test_traps.py`, for the semantic layer: what is in the key, which wall it is behind, how long it lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full.trap_support import Trap, check, check_unspoilt

pytestmark = pytest.mark.full

KEYS, LAYER = "keys.py", "semantic/layer.py"
IN_CONTRACT = "tests/core/test_keys.py::test_every_parameter_counts_in_the_contract_even_at_its_zero"
VALUES = "tests/core/test_keys.py::test_different_parameters_are_different_contracts"
HISTORY = "tests/core/test_pipeline.py::test_another_history_never_hits"
TTL = "tests/core/test_pipeline.py::test_ttl_is_absolute_and_a_request_can_only_shorten_it"
NEAREST = "tests/semantic/test_index.py::test_the_nearest_come_first_with_their_cosine"
LIFE = "tests/stores/test_conformance.py::test_neither_use_nor_a_new_vector_prolongs_a_life"
PARAMETERS = ("temperature", "top_p", "seed", "max_new_tokens", "n")


def not_in_the_key(what: str, fix: str, fault: str = "", test: str = IN_CONTRACT) -> Trap:
    return Trap(f"{what} missing from the key", KEYS, fix, fault, test)


TRAPS = (
    # 1: a parameter is missing from the key
    *(not_in_the_key(name, f'        "{name}": sampling.{name},\n') for name in PARAMETERS),
    not_in_the_key("stop", '        "stop": list(sampling.stop),\n'),
    not_in_the_key("tools", '        "tools": tools,\n', test=f"{IN_CONTRACT}[tools]"),
    not_in_the_key(
        "response_format", '        "response_format": response_format,\n', test=f"{IN_CONTRACT}[response_format]"
    ),
    not_in_the_key("an unknown parameter", '        "extra": extra,\n', test=f"{IN_CONTRACT}[extra]"),
    not_in_the_key(
        "the system prompt",
        'digest(b"system", canonical_json(system)) if system else _digest_of_none(b"system")',
        '_digest_of_none(b"system")',
    ),
    Trap(
        "a wrapped function's arguments missing from the key",
        "wrap.py",
        'extra={"function": name, "arguments": others}',
        'extra={"function": name}',
        "tests/core/test_wrap.py::test_model_name_version_and_other_arguments_are_the_contract",
    ),
    # 2: an omitted parameter is taken for its zero
    Trap(
        "no temperature is temperature 0",
        KEYS,
        '"temperature": sampling.temperature',
        '"temperature": sampling.temperature or 0.0',
        IN_CONTRACT,
    ),
    Trap(
        "no top_p is top_p 1",
        KEYS,
        '"top_p": sampling.top_p',
        '"top_p": 1.0 if sampling.top_p is None else sampling.top_p',
        IN_CONTRACT,
    ),
    Trap("no seed is seed 0", KEYS, '"seed": sampling.seed', '"seed": sampling.seed or 0', IN_CONTRACT),
    Trap(
        "no penalty is penalty 0",
        KEYS,
        '"extra": extra,',
        '"extra": {name: value for name, value in extra.items() if value},',
        f"{IN_CONTRACT}[extra]",
    ),
    Trap(
        "no response_format is an empty one",
        KEYS,
        '"response_format": response_format,',
        '"response_format": response_format or None,',
        VALUES,
    ),
    # 3: the question's text is part of the key
    Trap(
        "the question in the contract",
        KEYS,
        "request.messages[:-1])",
        "request.messages)",
        "tests/core/test_keys.py::test_the_users_words_are_not_in_the_contract",
    ),
    # 4: the tenant is mixed into the text instead of a wall
    Trap(
        "the tenant in the text that is embedded",
        LAYER,
        "yield Embed(request.question,",
        'yield Embed(f"{request.tenant}: {request.question}",',
        "tests/semantic/test_layer.py",
    ),
    Trap(
        "no wall between tenants",
        LAYER,
        "        request.tenant,\n        user=",
        '        "everybody",\n        user=',
        "tests/core/test_walls.py::test_nobody_else_is_served",
    ),
    Trap(
        "no wall between users",
        LAYER,
        'user=request.user if "user" in policy.walls else None',
        "user=None",
        "tests/core/test_walls.py::test_nobody_else_is_served",
    ),
    Trap(
        "the tenant missing from a partition's digest",
        KEYS,
        "= [partition.tenant, partition.user, partition.role]",
        "= [partition.user, partition.role]",
        "tests/core/test_keys.py::test_partitions_never_collide",
    ),
    Trap(
        "one group of vectors for all partitions",
        "semantic/index.py",
        "key = (partition.digest, encoder)",
        'key = ("", encoder)',
        "tests/semantic/test_index.py::test_partitions_contracts_and_encoders_are_walls",
    ),
    # 5: a distance is read as a similarity
    Trap("1 - cosine", "semantic/vectors.py", "min(1.0, float(np.dot(", "min(1.0, 1.0 - float(np.dot(", NEAREST),
    Trap(
        "(1 + cosine) / 2",
        "semantic/vectors.py",
        "min(1.0, float(np.dot(one.astype(np.float64), other.astype(np.float64)))))",
        "min(1.0, (1 + float(np.dot(one.astype(np.float64), other.astype(np.float64)))) / 2))",
        NEAREST,
    ),
    Trap(
        "L2 in the flat part",
        "semantic/vectors_flat.py",
        "faiss.IndexFlatIP(",
        "faiss.IndexFlatL2(",
        "tests/semantic/test_index_graphs.py"
        "::test_what_is_written_later_is_found_at_once_and_extends_the_graph_when_it_is_much",
    ),
    Trap(
        "L2 in a graph",
        "semantic/vectors_graph.py",
        "self._faiss.METRIC_INNER_PRODUCT",
        "self._faiss.METRIC_L2",
        "tests/semantic/test_index_graphs.py"
        "::test_searches_go_on_while_a_graph_is_built_and_what_happened_meanwhile_is_in_it",
    ),
    Trap(
        "near is small",
        "semantic/decide.py",
        "c.similarity >= policy.reject_below",
        "1 - c.similarity >= policy.reject_below",
        "tests/semantic/test_decide.py::test_nothing_below_reject_below",
    ),
    # 6: use prolongs a life
    Trap(
        "a hit begins the life anew",
        "serving.py",
        "    yield from _touch(found.value, trace, None if found.reason is Reason.STALE else sliding_s, now_s)\n",
        "    from cachestack.effects import PublishEntry\n\n"
        "    yield PublishEntry(replace(found.value, created_at_s=now_s, expires_at_s=now_s + 1e6), None)\n",
        TTL,
    ),
    Trap(
        "a use that is noted moves the end, on disk",
        "stores/tenant_file.py",
        "SET access_time = max(access_time, ?) WHERE",
        "SET access_time = max(access_time, ?), expire_time = access_time + 86400 WHERE",
        LIFE,
    ),
    Trap(
        "a use that is noted moves the end, in memory",
        "stores/memory.py",
        "                order.move_to_end((partition, entry_id))\n\n",
        "                order.move_to_end((partition, entry_id))\n"
        "                kept = self._rooms[partition].entries[entry_id]\n"
        "                from dataclasses import replace\n\n"
        "                kept.entry = replace(kept.entry, expires_at_s=now_s + 60)\n\n",
        LIFE,
    ),
    # 7: what looks at an entry again gives it the usual life
    Trap(
        "a new vector comes with a new life",
        "stores/codec.py",
        "replace(entry, vector=vector, encoder=encoder, states=states)",
        "replace(entry, vector=vector, encoder=encoder, states=states, expires_at_s=entry.created_at_s + 86400)",
        LIFE,
    ),
    Trap(
        "a row that is written anew forgets its end",
        "stores/tenant_file.py",
        "UPDATE Cache SET value = ?, size = ? WHERE",
        "UPDATE Cache SET expire_time = NULL, value = ?, size = ? WHERE",
        LIFE,
    ),
    Trap(
        "the policy's time to live instead of the entry's own",
        "entries.py",
        "now_s < min(self.expires_at_s, self.created_at_s + max_age_s)",
        "now_s < self.created_at_s + max_age_s",
        TTL,
    ),
    Trap(
        "kept for the policy's time to live instead of the request's",
        "settling.py",
        "    ends_at_s = life.end_s(asked_at_s)\n",
        "    ends_at_s = asked_at_s + policy.retention.ttl_s\n",
        TTL,
    ),
    # 19: the first message is ignored, or only the last one used
    Trap("the first message ignored", KEYS, "request.messages[:-1])", "request.messages[1:-1])", HISTORY),
    Trap("only the turn before used", KEYS, "request.messages[:-1])", "request.messages[-2:-1])", HISTORY),
    Trap(
        "only the last message used",
        KEYS,
        'digest(b"history", canonical_json(history)) if history else _digest_of_none(b"history")',
        '_digest_of_none(b"history")',
        HISTORY,
    ),
    Trap(
        "roles ignored",
        KEYS,
        'history = [[m.role, "" if',
        'history = [["", "" if',
        "tests/core/test_keys.py::test_roles_and_places_of_messages_count",
    ),
    # 23: exact repeats miss
    Trap(
        "the order of keys counts",
        KEYS,
        "sort_keys=True",
        "sort_keys=False",
        "tests/core/test_keys.py::test_the_order_of_keys_in_a_parameter_does_not_count",
    ),
    Trap(
        "line ends and outer white space count",
        KEYS,
        'text if contract.last_role == "assistant" else normalise(text)',
        "text",
        "tests/core/test_keys.py::test_exact_keys_ignore_unicode_form_line_ends_and_outer_space_only",
    ),
    Trap(
        "the time in the contract",
        "pipeline.py",
        "contract = contract_of(request, request.model)",
        "contract = contract_of(replace(request, version=str(self.clock())), request.model)",
        TTL,
    ),
    Trap(
        "what is said about the asking in the contract",
        KEYS,
        "version=request.version,",
        'version=f"{request.version} {request.tags} {request.ttl_s}",',
        "tests/core/test_keys.py::test_tenant_user_and_tags_are_walls_and_marks_not_contract",
    ),
)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_test_of_a_trap_fails_when_its_fix_is_taken_out(copy: Path, trap: Trap) -> None:
    check(copy, trap)


def test_the_tests_pass_on_the_copy_as_it_is(copy: Path) -> None:
    check_unspoilt(copy, [trap.test for trap in TRAPS])
