"""The measurement itself, on the real model: right results are demanded, times are only looked for."""

from __future__ import annotations

import json

import pytest
import torch

from cachestack.bench.columns import Column, Ways
from cachestack.bench.copies import copied_bytes
from cachestack.bench.lookup import lookup_cost
from cachestack.bench.operators import operator_shares
from cachestack.bench.prompt import few_shot, load_material
from cachestack.bench.rounds import Rounds
from cachestack.engines.base import KVRun
from cachestack.engines.transformers.kv import KVTensors
from cachestack.errors import EngineError


@pytest.fixture(scope="module")
def ways(local_engine):
    return Ways(local_engine, few_shot(local_engine, 64, 25, load_material()), max_pack_items=2)


def test_every_way_but_the_floor_comes_to_the_same_logits(ways):
    whole = ways.whole(1)[0]
    for row in (ways.recipe(1)[0], ways.single(1)[0], ways.packed(1)[0], ways.packed(0)[1]):
        assert torch.allclose(row, whole, atol=1e-3)
    assert not torch.allclose(ways.floor(1)[0], whole, atol=1.0)
    assert torch.equal(ways.cold_row(1), ways.single(1)[0])


def test_the_recipe_crops_what_it_fed(ways):
    first = ways.recipe(0)
    ways.recipe(1)
    assert torch.equal(ways.recipe(0), first)


def test_a_hit_is_a_hit_and_its_lease_ends(ways):
    with ways.hit(2) as plan:
        assert plan.lookup.reason.value == "prefix_full"
        assert sum(run.num_tokens for run in plan.past) == 64
        assert ways._layer.sizes().num_leased
    assert not ways._layer.sizes().num_leased


def test_a_first_run_begins_with_an_empty_pool_each_time(ways):
    pool = ways._layer
    ways.cold_again(0)
    ways.cold_again(0)
    assert ways._layer is pool


def test_wrong_results_are_found(ways):
    whole, single = ways.columns["whole"], ways.columns["single"]
    rounds = Rounds(ways, (whole, single))
    rounds.repeat(0)
    assert rounds.agreement.differences["single"] < 1e-3
    assert rounds.agreement.same_argmax

    wrong = Rounds(ways, (whole, Column("single", ways.floor)))
    wrong.repeat(0)
    assert wrong.agreement.differences["single"] > 1.0
    assert not wrong.agreement.holds

    broken = Rounds(ways, (whole, Column("single", lambda i: ways.whole(i) * float("nan"))))
    with pytest.raises(EngineError, match="'single' are not finite"):
        broken.repeat(0)


def test_each_repetition_begins_with_another_column(ways):
    order: list[str] = []
    row = torch.zeros(1, 3)

    def named(name):
        def run(index):
            order.append(f"{name}{index}")
            return row

        return Column(name, run)

    rounds = Rounds(ways, tuple(named(name) for name in ("whole", "single", "packed")))
    for rep in range(3):
        rounds.repeat(rep)
    assert order == [
        *("whole0", "single0", "packed0"),
        *("single1", "packed1", "whole1"),
        *("packed2", "whole2", "single2"),
    ]
    assert {len(times) for times in rounds.times_ms.values()} == {3}


def test_bytes_out_of_a_prefix_are_counted_and_no_others():
    kept, other = torch.randn(1, 2, 8, 4), torch.randn(1, 2, 8, 4)
    run = KVRun(KVTensors(((kept, kept + 1),)), start=0, num_tokens=8, num_bytes=512)
    size = kept.numel() * 4
    assert copied_bytes([run], lambda: torch.cat([kept, other]))[0] == size
    assert copied_bytes([run], lambda: kept[..., :2, :].contiguous())[0] == size // 4
    assert copied_bytes([run], lambda: kept.expand(3, -1, -1, -1).clone())[0] == 3 * size
    assert copied_bytes([run], lambda: torch.empty(1, 2, 16, 4)[..., :8, :].copy_(kept))[0] == size
    assert copied_bytes([run], lambda: kept.double())[0] == size
    assert copied_bytes([run], lambda: (kept[..., :2, :].transpose(1, 2), kept @ other.mT, other.clone()))[0] == 0


def test_look_ups_find_what_was_kept():
    cost = lookup_cost(num_blocks=200, prompt_tokens=100, num_lookups=20)
    assert cost.num_blocks == 32 * 6
    assert 0 < cost.full.median_ms <= cost.full.p95_ms
    assert set(cost.to_json()) == {"blocks", "prompt_tokens", "full", "half", "none"}


def test_shares_of_operators_are_of_all():
    square = torch.ones(64, 64)
    operators = operator_shares(lambda: (square @ square).relu(), passes=2, top=2)
    assert len(operators) == 2
    assert operators[0].share >= operators[1].share > 0
    assert sum(operator.share for operator in operators) <= 1
    everything = operator_shares(lambda: (square @ square).relu(), passes=2, top=50)
    assert sum(operator.share for operator in everything) == pytest.approx(1)
    assert {"aten::mm", "aten::relu"} <= {operator.name for operator in everything}


def test_a_quick_run_prints_one_document_and_exits_0(quick_run, document):
    assert quick_run["status"] == 0
    assert "repetitions" in quick_run["err"]
    assert json.loads(quick_run["out"]) == document
    assert quick_run["model"] not in quick_run["out"], "no path of the machine"


def test_the_document_has_what_it_promises(document):
    ratio = {"median", "low", "high"}
    (figures,) = document["prefix"].values()
    assert {"whole_ms", "recipe_ms", "single_ms", "packed_ms", "floor_ms", "ceiling", "ratios"} <= set(figures)
    assert {"single_over_floor", "whole_over_packed", "whole_over_single", "recipe_over_single"} <= set(
        figures["ratios"]
    )
    assert all(set(of) == ratio for of in figures["ratios"].values())
    assert figures["ceiling"] == round((64 + 25) / 25, 2)
    assert set(document["miss_overhead"]) == set(document["cold_publish_overhead"]) == ratio
    assert document["cold_publish_by_length"] == {"64": document["cold_publish_overhead"]}
    assert isinstance(document["fork_ms"], float)
    assert isinstance(document["lookup_ms"], float)
    assert document["copied_bytes"] == 0
    assert document["lookup"]["blocks"] == 160 * 62
    machine = document["machine"]
    assert {"cpu", "cores", "threads", "os", "dtype", "attention", "flags", "versions", "load_average"} <= set(machine)
    assert (machine["dtype"], machine["threads"]) == ("float32", torch.get_num_threads())
    assert machine["flags"]["TRANSFORMERS_SDPA_FORCE_GQA"] == "1"
    assert {"python", "torch", "transformers"} <= set(machine["versions"])
    assert document["quick"] is True
    agreement = figures["agreement"]
    assert agreement["holds"]
    assert agreement["cold_equals_warm"]
    assert agreement["compared"] >= 4
    assert set(agreement["max_difference"]) == {"recipe", "single", "packed"}
