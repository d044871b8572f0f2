"""What statistics look like from outside: sums turned into figures per tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cachestack.histogram import Histogram, quantile

if TYPE_CHECKING:
    from cachestack.policy_watch import PolicyState
    from cachestack.semantic.budget.report import ClassReport
    from cachestack.semantic.encoder_change import Progress
    from cachestack.semantic.index_counts import IndexCounts

SOURCES = ("exact", "semantic", "stale", "shared", "engine")


@dataclass(frozen=True, slots=True)
class Quantiles:
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class LayerStats:
    """What one layer answered. `misses` and `bypasses` are by reason; hits, partials, misses and bypasses are all."""

    lookups: int
    hits: Mapping[str, int]
    partials: int
    misses: Mapping[str, int]
    bypasses: Mapping[str, int]

    @property
    def num_hits(self) -> int:
        return sum(self.hits.values())

    @property
    def hit_rate(self) -> float:
        """Hits as a share of look-ups; 0 where there were none."""
        return self.num_hits / self.lookups if self.lookups else 0.0


@dataclass(frozen=True, slots=True)
class TenantStats:
    """One tenant's sums. Times in seconds, costs in the currency that `priced_by` names (None where no price is known).

    `priced_by`: by which price table, with its date, so many requests were priced. `answers`: how long answers took, by
    where they came from (`Trace.served_from`). `tokens_replayed`: prompt and answer of what the cache served.
    `engine_timeouts` of `engine_errors` were silent for longer than the policy allows; `shared_calls` are requests that
    were answered by another request's call of the engine. `kept` and `not_kept` count answers by the reason: as what
    they were kept (`stored`; `personal_data`, `unconfirmed`, … for their user alone), or why they were not. `audits` of
    hits by meaning were asked afresh, after they had been answered; `audit_cost` of `cost` is theirs. `freshness`:
    answers that were made, by how soon they change (never, slow, fast), and of all of them those whose life was
    shortened for it, and those not kept. `revalidations`: new answers made in the background, by how that ended.
    """

    requests: int
    engine_calls: int
    engine_errors: int
    engine_timeouts: int
    shared_calls: int
    failed: int
    cancelled: int
    semantic: LayerStats
    prefix: LayerStats
    fallbacks: Mapping[str, int]
    wrong_hit_reports: int
    store_failures: int
    tokens_prefilled: int
    tokens_reused: int
    tokens_generated: int
    tokens_replayed: int
    seconds_saved: float
    bytes_saved: int
    cost: float | None
    cost_saved: float | None
    cost_per_request: float | None
    classified_items: int
    latency_s: Quantiles
    ttft_s: Quantiles
    per_token_s: Quantiles
    prompt_tokens: Quantiles
    answers: Mapping[str, Histogram]
    ttft: Histogram
    per_token: Histogram
    priced_by: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    not_kept: Mapping[str, int] = field(default_factory=dict)
    right_hit_reports: int = 0
    audits: int = 0
    audit_cost: float = 0.0
    freshness: Mapping[str, int] = field(default_factory=dict)
    revalidations: Mapping[str, int] = field(default_factory=dict)

    @property
    def fallback_rate(self) -> float:
        return sum(self.fallbacks.values()) / self.requests if self.requests else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {**_plain(self), "fallback_rate": self.fallback_rate}
        del values["ttft"], values["per_token"]
        values["answers"] = {source: histogram.num_values for source, histogram in self.answers.items()}
        values["semantic"]["hit_rate"] = self.semantic.hit_rate
        values["prefix"]["hit_rate"] = self.prefix.hit_rate
        return values


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All tenants' statistics at one moment. `reembedding`: how far this process is with entries of an encoder before;
    None where there was none. `index`: the vectors that this process holds, and how; None where there is no index.
    `policy`: which policies this process follows; None where it follows none. `budgets`: the error budgets that this
    process keeps, by tenant and class."""

    by_tenant: Mapping[str, TenantStats]
    reembedding: Progress | None = None
    index: IndexCounts | None = None
    policy: PolicyState | None = None
    budgets: Mapping[str, Mapping[str, ClassReport]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"tenants": {name: stats.as_dict() for name, stats in sorted(self.by_tenant.items())}}
        values |= {} if self.reembedding is None else {"reembedding": _plain(self.reembedding)}
        values |= {} if self.policy is None else {"policy": _plain(self.policy)}
        if self.budgets:
            values["budgets"] = {t: {c: r.as_dict() for c, r in of.items()} for t, of in self.budgets.items()}
        return values if self.index is None else values | {"index": self.index.as_dict()}


def tenant_stats(sums: Mapping[str, float]) -> TenantStats:
    priced = sums.get("priced_requests", 0)
    return TenantStats(
        requests=int(sums.get("requests", 0)),
        engine_calls=int(sums.get("engine_calls", 0)),
        engine_errors=int(sums.get("engine_errors", 0)),
        engine_timeouts=int(sums.get("engine_timeouts", 0)),
        shared_calls=int(sums.get("shared_calls", 0)),
        failed=int(sums.get("failed", 0)),
        cancelled=int(sums.get("cancelled", 0)),
        semantic=_layer_stats(sums, "semantic"),
        prefix=_layer_stats(sums, "prefix"),
        fallbacks=_under(sums, "fallback."),
        wrong_hit_reports=int(sums.get("wrong_hit_reports", 0)),
        store_failures=int(sums.get("store_failures", 0)),
        tokens_prefilled=int(sums.get("tokens.prefilled", 0)),
        tokens_reused=int(sums.get("tokens.reused", 0)),
        tokens_generated=int(sums.get("tokens.generated", 0)),
        tokens_replayed=int(sums.get("tokens.replayed", 0)),
        seconds_saved=float(sums.get("seconds_saved", 0.0)),
        bytes_saved=int(sums.get("bytes_saved", 0)),
        cost=sums.get("cost", 0.0) if priced else None,
        cost_saved=sums.get("cost_saved", 0.0) if priced else None,
        cost_per_request=sums.get("cost", 0.0) / priced if priced else None,
        classified_items=int(sums.get("classified_items", 0)),
        latency_s=_quantiles(sums, "latency_s"),
        ttft_s=_quantiles(sums, "ttft_s"),
        per_token_s=_quantiles(sums, "per_token_s"),
        prompt_tokens=_quantiles(sums, "prompt_tokens"),
        answers={
            source: Histogram(_counts(sums, f"answer_s.{source}"), float(sums.get(f"answer_total_s.{source}", 0.0)))
            for source in SOURCES
            if f"answer_total_s.{source}" in sums
        },
        ttft=Histogram(_counts(sums, "ttft_s"), float(sums.get("ttft_total_s", 0.0))),
        per_token=Histogram(_counts(sums, "per_token_s"), float(sums.get("per_token_total_s", 0.0))),
        priced_by=_under(sums, "priced_by."),
        kept=_under(sums, "kept."),
        not_kept=_under(sums, "not_kept."),
        right_hit_reports=int(sums.get("right_hit_reports", 0)),
        audits=int(sums.get("audits", 0)),
        audit_cost=float(sums.get("audit_cost", 0.0)),
        freshness=_under(sums, "freshness."),
        revalidations=_under(sums, "revalidations."),
    )


def _layer_stats(sums: Mapping[str, float], layer: str) -> LayerStats:
    hits, misses = _under(sums, f"{layer}.hit."), _under(sums, f"{layer}.miss.")
    partials, bypasses = sum(_under(sums, f"{layer}.partial.").values()), _under(sums, f"{layer}.bypass.")
    lookups = sum(hits.values()) + partials + sum(misses.values())
    return LayerStats(lookups, hits, partials, misses, bypasses)


def _under(sums: Mapping[str, float], start: str) -> dict[str, int]:
    return {name.removeprefix(start): int(n) for name, n in sorted(sums.items()) if name.startswith(start)}


def _quantiles(sums: Mapping[str, float], name: str) -> Quantiles:
    counts = _counts(sums, name)
    return Quantiles(quantile(counts, 0.5), quantile(counts, 0.95), quantile(counts, 0.99))


def _counts(sums: Mapping[str, float], name: str) -> dict[int, float]:
    return {int(number): n for number, n in _under(sums, f"{name}.").items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return dict(value) if isinstance(value, Mapping) else value
