"""From a finished request's trace to the sums that statistics add up."""

from __future__ import annotations

from collections import Counter

from cachestack.decisions import Layer, Outcome, Reason, Trace
from cachestack.histogram import bucket
from cachestack.policy import PricePolicy
from cachestack.requests import Usage

Sums = Counter[str]


def sums_of_answer(trace: Trace, usage: Usage, prices: PricePolicy) -> Sums:
    """A request that was answered."""
    sums = sums_of_trace(trace)
    sums[f"latency_s.{bucket(trace.seconds)}"] += 1
    if trace.served_from == "engine":
        sums[f"prompt_tokens.{bucket(usage.prompt_tokens)}"] += 1
        sums["tokens.prefilled"] += usage.prompt_tokens - usage.cached_tokens
        sums["tokens.reused"] += usage.cached_tokens
        sums["tokens.generated"] += usage.completion_tokens
        _add_cost(sums, "cost", prices, usage)
    else:
        _add_cost(sums, "cost_saved", prices, usage)
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
        elif step.layer is Layer.DECODE and "new_tokens" in detail:
            sums["engine_calls"] += 1
            sums[f"ttft_s.{bucket(detail['ttft_s'])}"] += 1
            if detail["new_tokens"] > 1:
                sums[f"per_token_s.{bucket(detail['decode_s'] / (detail['new_tokens'] - 1))}"] += 1
        elif step.layer is Layer.SETTLE and step.outcome is Outcome.FAILED:
            sums["store_failures"] += 1
    return sums


def _add_cost(sums: Sums, name: str, prices: PricePolicy, usage: Usage) -> None:
    if prices.input_per_million is not None or prices.output_per_million is not None:
        price = usage.prompt_tokens * (prices.input_per_million or 0.0)
        price += usage.completion_tokens * (prices.output_per_million or 0.0)
        sums[name] += price / 1e6  # type: ignore[assignment]
        sums["priced_requests"] += 1
