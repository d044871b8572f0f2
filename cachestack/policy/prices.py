"""The prices' section of a policy."""

from __future__ import annotations

from pydantic import field_validator

from cachestack.policy.section import Money, Section
from cachestack.prices import BUILT_IN, ModelPrice, price_table, read_again


class PricePolicy(Section):
    """Prices, for cost figures. Without any for a model its costs are not shown."""

    table: str | None = BUILT_IN
    """A price table by model: a file, `built-in` (dated; check it), or none."""

    input_per_million: Money | None = None
    """Price of a million prompt tokens, of any model. This or the next one set, no table is read."""

    output_per_million: Money | None = None
    """Price of a million generated tokens, of any model."""

    cached_read_per_million: Money | None = None
    """Price of a million prompt tokens that the provider had in its cache; None: as the others."""

    cache_write_per_million: Money | None = None
    """Price of a million prompt tokens that the provider put into its cache; None: as the others."""

    currency: str = "USD"
    """Of the prices set here; a table says its own."""

    @field_validator("table")
    @classmethod
    def _readable(cls, table: str | None) -> str | None:
        if table is not None and table != BUILT_IN:
            read_again(table)
        return table

    def price_of(self, model: str) -> tuple[ModelPrice, str] | None:
        """What tokens of a model cost, and by which table (its name, date and currency)."""
        if self.input_per_million is not None or self.output_per_million is not None:
            price = ModelPrice(
                self.input_per_million or 0.0,
                self.output_per_million or 0.0,
                self.cached_read_per_million,
                self.cache_write_per_million,
            )
            return price, f"policy {self.currency}"
        if self.table is None:
            return None
        table = price_table(self.table)
        found = table.price_of(model)
        return None if found is None else (found, table.label)
