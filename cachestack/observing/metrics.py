"""Which metrics there are, and what each tenant's statistics are as counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cachestack.decisions import Reason
from cachestack.histogram import Histogram
from cachestack.snapshot import SOURCES, LayerStats, TenantStats

OTHER = "other"
UNKNOWN = "unknown"
_REASONS = frozenset(reason.value for reason in Reason)


@dataclass(frozen=True, slots=True)
class Described:
    """A metric's help text, and its labels beside `tenant`."""

    text: str
    labels: tuple[str, ...] = ()


COUNTERS: Mapping[str, Described] = {
    "cachestack_requests_total": Described("Requests that ended, by what answered them.", ("served_from",)),
    "cachestack_lookups_total": Described("What a layer answered, and why.", ("layer", "outcome", "reason")),
    "cachestack_fallbacks_total": Described("Steps of the fallback chain.", ("reason",)),
    "cachestack_freshness_total": Described(
        "Answers made, by how soon they change; of these those kept shorter for it, or not at all.", ("kind",)
    ),
    "cachestack_revalidations_total": Described("New answers made in the background, by how it ended.", ("ended",)),
    "cachestack_engine_calls_total": Described("Answers that an engine made."),
    "cachestack_engine_errors_total": Described("Attempts that failed in an engine."),
    "cachestack_answers_settled_total": Described("Answers that were kept, or not, and why.", ("outcome", "reason")),
    "cachestack_store_failures_total": Described("Answers that could not be kept, or uses not noted."),
    "cachestack_wrong_hit_reports_total": Described("Hits that somebody reported as wrong."),
    "cachestack_audits_total": Described("Hits by meaning that were asked afresh after they had been answered."),
    "cachestack_tokens_total": Described("Tokens of engine calls: prefilled, reused, generated.", ("kind",)),
    "cachestack_classified_items_total": Described("Items that were labelled."),
    "cachestack_saved_seconds_total": Described("Engine time that hits and reused prefixes saved."),
    "cachestack_saved_tokens_total": Described("Tokens neither bought nor computed, by the layer.", ("layer",)),
    "cachestack_saved_kv_bytes_total": Described("KV that was not computed again."),
    "cachestack_cost_total": Described("Cost of engine calls, by the policy's prices.", ("currency",)),
    "cachestack_saved_cost_total": Described("What hits would have cost.", ("currency",)),
}
HISTOGRAMS: Mapping[str, Described] = {
    "cachestack_request_seconds": Described("How long answered requests took.", ("served_from",)),
    "cachestack_time_to_first_token_seconds": Described("Time to an engine's first token."),
    "cachestack_time_per_output_token_seconds": Described("Time per token after the first."),
}
GAUGES: Mapping[str, Described] = {
    "cachestack_entries": Described("Cached answers."),
    "cachestack_entry_bytes": Described("Bytes of cached answers, as charged to the tenant's budget."),
    "cachestack_kv_bytes": Described("KV kept in this process."),
    "cachestack_kv_tokens": Described("Tokens whose KV is kept in this process."),
    "cachestack_budget_state": Described("1 for the state that the error budget is in.", ("class", "state")),
    "cachestack_budget_threshold": Described("Score from which answers are served by meaning; 2: none is.", ("class",)),
    "cachestack_budget_wrong_rate_low": Described("Lower end of the wrong rate's interval.", ("class",)),
    "cachestack_budget_wrong_rate_high": Described("Upper end of the wrong rate's interval.", ("class",)),
}
OWN_GAUGES: Mapping[str, str] = {
    "cachestack_store_readable": "1 where the store of entries could be read for this answer, else 0.",
    "cachestack_kv_max_bytes": "This process's budget for KV.",
    "cachestack_kv_pinned_bytes": "KV that is pinned in this process.",
    "cachestack_kv_leased_segments": "Pieces of kept KV that requests read now.",
    "cachestack_index_vectors": "Vectors in this process's index.",
    "cachestack_index_graph_vectors": "Of these, in graphs.",
    "cachestack_index_groups": "Groups of vectors: a partition and an encoder each.",
    "cachestack_index_tombstones": "Removed vectors that still take room.",
    "cachestack_index_bytes": "What the index takes in memory, about.",
}
OWN_COUNTERS: Mapping[str, str] = {
    "cachestack_kv_evictions_total": "Pieces of KV that made room for others in this process.",
    "cachestack_corrupt_entries_total": "Damaged entries and files that this process found.",
    "cachestack_index_builds_total": "Graphs built, extended or built anew by this process.",
    "cachestack_index_loads_total": "Groups that this process read from the store.",
}
BUCKETS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip

Labels = tuple[str, ...]


def counters_of(stats: TenantStats, currency: str) -> Iterator[tuple[str, Labels, float]]:
    """Name, labels after the tenant, value. Those that can be 0 are there from the start, so that rates begin well."""
    for source in SOURCES:
        yield "cachestack_requests_total", (source,), stats.answers.get(source, Histogram()).num_values
    yield "cachestack_requests_total", ("failed",), stats.failed
    yield "cachestack_requests_total", ("cancelled",), stats.cancelled
    for layer, figures in (("semantic", stats.semantic), ("prefix", stats.prefix)):
        for outcome, reason, count in _lookups(figures):
            yield "cachestack_lookups_total", (layer, outcome, reason), count
    for reason, count in stats.fallbacks.items():
        yield "cachestack_fallbacks_total", (_closed(reason),), count
    for kind, count in stats.freshness.items():
        yield "cachestack_freshness_total", (kind,), count
    for ended, count in stats.revalidations.items():
        yield "cachestack_revalidations_total", (ended,), count
    yield "cachestack_engine_calls_total", (), stats.engine_calls
    yield "cachestack_engine_errors_total", (), stats.engine_errors
    for outcome, settled in (("kept", stats.kept), ("not_kept", stats.not_kept)):
        for reason, count in settled.items():
            yield "cachestack_answers_settled_total", (outcome, _closed(reason)), count
    yield "cachestack_store_failures_total", (), stats.store_failures
    yield "cachestack_wrong_hit_reports_total", (), stats.wrong_hit_reports
    yield "cachestack_audits_total", (), stats.audits
    yield "cachestack_tokens_total", ("prefilled",), stats.tokens_prefilled
    yield "cachestack_tokens_total", ("reused",), stats.tokens_reused
    yield "cachestack_tokens_total", ("generated",), stats.tokens_generated
    yield "cachestack_classified_items_total", (), stats.classified_items
    yield "cachestack_saved_seconds_total", (), stats.seconds_saved
    yield "cachestack_saved_tokens_total", ("semantic",), stats.tokens_replayed
    yield "cachestack_saved_tokens_total", ("prefix",), stats.tokens_reused
    yield "cachestack_saved_kv_bytes_total", (), stats.bytes_saved
    if stats.cost is not None and stats.cost_saved is not None:
        yield "cachestack_cost_total", (currency,), stats.cost
        yield "cachestack_saved_cost_total", (currency,), stats.cost_saved


def histograms_of(stats: TenantStats) -> Iterator[tuple[str, Labels, Histogram]]:
    for source in SOURCES:
        yield "cachestack_request_seconds", (source,), stats.answers.get(source, Histogram())
    yield "cachestack_time_to_first_token_seconds", (), stats.ttft
    yield "cachestack_time_per_output_token_seconds", (), stats.per_token


def _lookups(stats: LayerStats) -> Iterator[tuple[str, str, int]]:
    if stats.partials:
        yield "partial", Reason.PREFIX_PARTIAL.value, stats.partials
    for outcome, counts in (("hit", stats.hits), ("miss", stats.misses), ("bypass", stats.bypasses)):
        for reason, count in counts.items():
            yield outcome, _closed(reason), count


def _closed(reason: str) -> str:
    """A record may have been written by a newer version, with reasons that this one does not know."""
    return reason if reason in _REASONS else UNKNOWN
