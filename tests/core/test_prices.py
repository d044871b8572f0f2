"""Price tables: which model, which file, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachestack.errors import PolicyError
from cachestack.policy import PricePolicy
from cachestack.policy_set import PolicySet
from cachestack.prices import ModelPrice, price_table
from cachestack.requests import Usage

MINE = "{as_of: 2030-01-02, currency: EUR, models: {m: {input: 1, output: 2}, m-large: {input: 3, output: 4}}}"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def test_the_built_in_table_is_dated_and_sane() -> None:
    table = price_table("built-in")
    assert table.as_of.startswith("20")
    assert "check" in (Path(__file__).parents[2] / "cachestack/data/prices.yaml").read_text(encoding="utf-8")
    for price in table.models.values():
        assert 0 < price.input_per_million < price.output_per_million
        assert price.cached_read_per_million < price.input_per_million
        assert price.cache_write_per_million is None or price.cache_write_per_million > price.input_per_million


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18", "openai/gpt-4o-mini", "gpt-4o-mini-latest"])
def test_a_model_is_found_by_its_names(model: str) -> None:
    assert price_table("built-in").price_of(model).input_per_million == 0.15


@pytest.mark.parametrize("model", ["", "gpt-4o-mini-audio", "gpt-4", "scripted", "mini"])
def test_a_model_that_is_not_there_has_no_price(model: str) -> None:
    assert price_table("built-in").price_of(model) is None


def test_each_kind_of_token_has_its_price() -> None:
    price = ModelPrice(10.0, 100.0, 1.0, 20.0)
    usage = Usage(1_000_000, 200_000, 10_000, 300_000)
    assert price.cost(usage) == pytest.approx(5.0 + 0.2 + 6.0 + 1.0)
    assert ModelPrice(10.0, 100.0).cost(usage) == pytest.approx(11.0)
    assert price.cost(Usage(10, 20, 0, 30)) >= 0


def test_a_file_replaces_the_built_in_table(mine: Path) -> None:
    prices = PolicySet.parse(f"default: {{prices: {{table: '{mine}'}}}}", "p").policy("t").prices
    assert prices.price_of("m-large") == (ModelPrice(3.0, 4.0), "mine.yaml 2030-01-02 EUR")
    assert prices.price_of("gpt-4o") is None
    mine.write_text(MINE.replace("input: 3", "input: 5"))
    again = PolicySet.parse(f"default: {{prices: {{table: '{mine}'}}}}", "p").policy("t").prices
    assert again.price_of("m-large")[0].input_per_million == 5.0, "policies loaded again read it again"


def test_prices_in_the_policy_win(mine: Path) -> None:
    explicit = PricePolicy(table=str(mine), output_per_million=7.0, currency="EUR")
    assert explicit.price_of("m") == (ModelPrice(0.0, 7.0), "policy EUR")
    assert explicit.price_of("any other") == explicit.price_of("m")
    assert PricePolicy(table=None).price_of("gpt-4o") is None


@pytest.mark.parametrize("text", ["", "[]", "{", "{as_of: 1, models: {m: {input: 1}}}", "{models: {}}",
                                  "{as_of: 1, models: {m: {input: 1, output: -1}}}",
                                  "{as_of: 1, models: {m: {input: 1, output: 1, cache: 1}}}"])  # fmt: skip
def test_a_wrong_table_is_said_when_the_policy_is_loaded(text: str, mine: Path) -> None:
    mine.write_text(text)
    with pytest.raises(PolicyError, match="price table"):
        PolicySet.parse(f"default: {{prices: {{table: '{mine}'}}}}", "p")


def test_a_table_that_is_not_there_is_said() -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        PolicySet.parse("default: {prices: {table: /nowhere/prices.yaml}}", "p")
