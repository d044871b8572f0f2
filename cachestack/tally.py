"""From a finished request's trace to the sums that statistics add up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachestack.decisions import Layer, Outcome, Reason, Trace
from cachestack.histogram import bucket
from cachestack.policy import PricePolicy
from cachestack.requests import Usage

Sums = Counter[str]
KEPT = frozenset(
    (
        *(Reason.STORED, Reason.TRUNCATED, Reason.SECRET, Reason.PERSONAL_DATA),
        *(Reason.CONFIRMED, Reason.UNCONFIRMED, Reason.DISAGREED),
    )
)
"""As what an answer is kept; the prefix layer tells of its own publishing under the same step."""
_EXACT_HIT = f"{Layer.SEMANTIC.value}.{Outcome.HIT.value}.{Reason.EXACT.value}"


def sums_of_answer(trace: Trace, usage: Usage, prices: PricePolicy) -> Sums:
    """A request that was answered."""
    sums = sums_of_trace(trace)
    source, number = trace.served_from, bucket(trace.seconds)
    sums[f"latency_s.{number}"] += 1
    sums[f"answer_s.{source}.{number}"] += 1
    sums[f"answer_total_s.{source}"] += trace.seconds  # type: ignore[assignment]
    if source == "engine":
        sums[f"prompt_tokens.{bucket(usage.prompt_tokens)}"] += 1
        sums["tokens.prefilled"] += usage.prompt_tokens - usage.cached_tokens
        sums["tokens.reused"] += usage.cached_tokens
        sums["tokens.generated"] += usage.completion_tokens
        _add_cost(sums, "cost", prices, model_of(trace), usage)
    else:  # what it would have cost at the full price, as if the provider had had nothing of it in its cache
        sums["tokens.replayed"] += usage.total_tokens
        asked = Usage(usage.prompt_tokens, 0, usage.completion_tokens)
        _add_cost(sums, "cost_saved", prices, model_of(trace), asked)
    return sums


@dataclass(frozen=True, slots=True, eq=False)
class HitKind:
    """All that statistics take from an exact hit with nothing besides, but its time. Most requests of a busy cache
    are of few kinds, and cost little where those of a kind are added up together."""

    usage: Usage
    saved_s: float
    model: str
    prices: PricePolicy


def kind_of_hit(trace: Trace, usage: Usage, prices: PricePolicy) -> HitKind | None:
    """None for all else."""
    if len(trace.steps) != 3:
        return None
    resolved, found, replayed = trace.steps
    if found.reason is not Reason.EXACT or replayed.reason is not Reason.REPLAYED:
        return None
    model = resolved.detail.get("model", "")
    return HitKind(usage, replayed.detail.get("saved_s", 0.0), model, prices)


def sums_of_hits(kind: HitKind, seconds: Sequence[float]) -> Sums:
    """As the sums of one answer after the other, `seconds` each."""
    num = len(seconds)
    sums: Sums = Counter({"requests": num, _EXACT_HIT: num, "bytes_saved": 0})
    sums["seconds_saved"] = num * kind.saved_s  # type: ignore[assignment]
    for number in map(bucket, seconds):
        sums[f"latency_s.{number}"] += 1
        sums[f"answer_s.exact.{number}"] += 1
    sums["answer_total_s.exact"] = math.fsum(seconds)  # type: ignore[assignment]
    sums["tokens.replayed"] = num * kind.usage.total_tokens
    asked = Usage(kind.usage.prompt_tokens, 0, kind.usage.completion_tokens)
    costs: Sums = Counter()
    _add_cost(costs, "cost_saved", kind.prices, kind.model, asked)
    for name, value in costs.items():
        sums[name] += num * value
    return sums


def sums_of_trace(trace: Trace) -> Sums:
    """What the layers decided, whether or not an answer came of it."""
    sums: Sums = Counter({"requests": 1})
    if trace.step(Layer.SEMANTIC) is None:  # it ended before: a bad request, a cancelled one
        sums[f"semantic.bypass.{Reason.NOT_REACHED.value}"] += 1
    for step in trace.steps:
        detail = step.detail
        sums["bytes_saved"] += detail.get("reused_bytes", 0)
        sums["seconds_saved"] += detail.get("saved_s", 0.0)
        if step.layer in (Layer.SEMANTIC, Layer.PREFIX):
            sums[f"{step.layer.value}.{step.outcome.value}.{step.reason.value}"] += 1
        elif step.layer is Layer.FALLBACK:
            sums[f"fallback.{step.reason.value}"] += 1
        elif step.layer is Layer.DECODE and step.outcome is Outcome.FAILED:
            sums["engine_errors"] += 1
            sums["engine_timeouts"] += bool(detail.get("timed_out"))
        elif step.layer is Layer.DECODE and step.reason is Reason.SHARED:
            sums["shared_calls"] += 1
        elif step.layer is Layer.DECODE and "new_tokens" in detail:
            sums["engine_calls"] += 1
            _add_seconds(sums, "ttft", detail["ttft_s"])
            if detail["new_tokens"] > 1:
                _add_seconds(sums, "per_token", detail["decode_s"] / (detail["new_tokens"] - 1))
        elif step.layer is Layer.SETTLE:
            if step.outcome is Outcome.FAILED:
                sums["store_failures"] += 1
            elif step.outcome is Outcome.BYPASS:
                sums[f"not_kept.{step.reason.value}"] += 1
            elif step.reason in KEPT:
                sums[f"kept.{step.reason.value}"] += 1
        if step.layer is Layer.SETTLE and (changes := detail.get("changes")):
            is_bound = str(detail["bound"]) not in ("retention.ttl_s", "ttl_s")
            sums[f"freshness.{changes}"] += 1
            sums["freshness.not_kept" if step.reason is Reason.MOVES else "freshness.shortened"] += is_bound
    return sums


_WORK = (
    *("tokens.prefilled", "tokens.reused", "tokens.generated", "cost", "priced_", "engine_", "ttft_", "per_token_"),
    *("store_failures", "shared_calls", "freshness."),
)


def sums_of_work(sums: Mapping[str, float]) -> dict[str, float]:
    """What engines and stores did, without the request that it was for."""
    return {name: n for name, n in sums.items() if name.startswith(_WORK) and not name.startswith("cost_saved")}


def _add_seconds(sums: Sums, name: str, seconds: float) -> None:
    sums[f"{name}_s.{bucket(seconds)}"] += 1
    sums[f"{name}_total_s"] += seconds  # type: ignore[assignment]


def _add_cost(sums: Sums, name: str, prices: PricePolicy, model: str, usage: Usage) -> None:
    found = prices.price_of(model)
    if found is not None:
        price, table = found
        sums[name] += price.cost(usage)  # type: ignore[assignment]
        sums["priced_requests"] += 1
        sums[f"priced_by.{table}"] += 1


def model_of(trace: Trace) -> str:
    """The model that answered, or that the request named."""
    decode, policy = trace.step(Layer.DECODE), trace.step(Layer.POLICY)
    named = "" if policy is None else policy.detail.get("model", "")
    return str(named if decode is None else decode.detail.get("model", named))
