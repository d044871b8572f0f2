"""What tokens cost, by model, from a dated table that a user can replace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from cachestack.requests import Usage

BUILT_IN = "built-in"
_DATED = re.compile(r"[-@](\d{4}-?\d{2}-?\d{2}|latest)$")
_FIELDS = ("input", "output", "cached_read", "cache_write")


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Prices of a million tokens; where the cache has none of its own (None), its tokens cost what others do."""

    input_per_million: float
    output_per_million: float
    cached_read_per_million: float | None = None
    cache_write_per_million: float | None = None

    def cost(self, usage: Usage) -> float:
        plain = max(usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens, 0)
        read = self.input_per_million if self.cached_read_per_million is None else self.cached_read_per_million
        write = self.input_per_million if self.cache_write_per_million is None else self.cache_write_per_million
        prompt = plain * self.input_per_million + usage.cached_tokens * read + usage.cache_write_tokens * write
        return (prompt + usage.completion_tokens * self.output_per_million) / 1e6


@dataclass(frozen=True, slots=True)
class PriceTable:
    name: str
    as_of: str
    currency: str
    models: Mapping[str, ModelPrice]

    @property
    def label(self) -> str:
        return f"{self.name} {self.as_of} {self.currency}"

    def price_of(self, model: str) -> ModelPrice | None:
        """By its name, without the date at its end, or without the provider in front."""
        for name in (model, model.rpartition("/")[2]):
            price = self.models.get(name) or self.models.get(_DATED.sub("", name))
            if price is not None:
                return price
        return None


@lru_cache(maxsize=16)
def price_table(name: str) -> PriceTable:
    """`built-in`, or a file. Raises ValueError where it is none."""
    if name == BUILT_IN:
        text = (resources.files("cachestack") / "data" / "prices.yaml").read_text(encoding="utf-8")
        return _parsed(BUILT_IN, text)
    path = Path(name).expanduser()
    try:
        return _parsed(path.name, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"the price table cannot be read: {error}") from error


def read_again(name: str) -> PriceTable:
    """As it is in the file now: policies are loaded again where it has changed."""
    price_table.cache_clear()
    return price_table(name)


def _parsed(name: str, text: str) -> PriceTable:
    try:
        values = yaml.safe_load(text)
        as_of = values["as_of"]
        models = {str(model): _price(prices) for model, prices in values["models"].items()}
        when = as_of.isoformat() if isinstance(as_of, date) else str(as_of)
        return PriceTable(name, when, str(values.get("currency", "USD")), models)
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        shape = "as_of: DATE, models: {NAME: {input: N, output: N, cached_read: N, cache_write: N}}"
        raise ValueError(f"{name} is no price table ({error}); it needs {shape}") from error


def _price(prices: Mapping[str, Any]) -> ModelPrice:
    if unknown := sorted(set(prices) - set(_FIELDS)):
        raise ValueError(f"unknown: {', '.join(unknown)}")
    given = [None if prices.get(field) is None else float(prices[field]) for field in _FIELDS]
    if given[0] is None or given[1] is None or not all(0 <= p < float("inf") for p in given if p is not None):
        raise ValueError("a price is missing or below 0")
    return ModelPrice(given[0], given[1], given[2], given[3])
