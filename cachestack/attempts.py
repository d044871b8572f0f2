"""Calls of engines for one request: the first, and those of the fallback chain, each with its prefix and its decode."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from cachestack.decisions import Layer, Outcome, Reason
from cachestack.effects import Effect, EngineFailed, FindExact, Generate, Prepare
from cachestack.engines.base import Computed, Engine, Prompt, is_token_engine
from cachestack.entries import Entry
from cachestack.errors import (
    CircuitOpen,
    ConfigError,
    ContextTooLong,
    EngineTimeout,
    MissingExtra,
    ModelError,
    StoreError,
    UpstreamError,
    UsageError,
)
from cachestack.leases import Lease
from cachestack.policy import Policy
from cachestack.prefix.layer import PrefixLayer, PrefixPlan
from cachestack.requests import Generation, Request
from cachestack.semantic.freshness.life import serves_stale
from cachestack.semantic.layer import Asked
from cachestack.settling import Answer
from cachestack.tracing import TraceBuilder

PRIMARY = "primary"
# Trying again cannot help here: the request, the set-up or the model's limit is what is wrong.
NOT_RETRIED = (UsageError, ConfigError, ModelError, ContextTooLong, MissingExtra)
REFUSED = frozenset({400, 413, 422})
"""What a provider says of a request that is wrong for all of them."""
RETRIED_BY_ENGINE = (UpstreamError, EngineTimeout, CircuitOpen)
"""A remote engine has tried again by itself before it raised one of these."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """`engines`: those that a policy may name for `other_engine`."""

    engines: Mapping[str, Engine]
    prefix: PrefixLayer
    clock: Callable[[], float]

    def answer(
        self,
        request: Request,
        policy: Policy,
        primary: Engine,
        trace: TraceBuilder,
        stale_for: Asked | None,
        lease: Lease | None,
    ) -> Generator[Effect, Any, Answer | Entry]:
        """The engine's answer, or what the policy's fallback chain gives instead.

        `stale_for` is the question that has a stale answer, if it has one.
        """
        attempts: list[tuple[str, Engine, Reason | None]]
        failure: EngineFailed | None = None
        for step in ("first", *policy.on_engine_error):
            match step:
                case "first":
                    attempts = [(PRIMARY, primary, None)]
                case "retry":
                    if failure is not None and isinstance(failure.cause, RETRIED_BY_ENGINE):
                        continue
                    attempts = [(PRIMARY, primary, Reason.RETRIED)] * policy.fallback.num_retries
                case "other_engine":
                    attempts = [(*self._other(policy), Reason.OTHER_ENGINE)]
                case "stale":
                    stale = yield from self._stale(stale_for, policy)
                    if stale is not None:
                        trace.add(Layer.FALLBACK, Outcome.DONE, Reason.STALE, {"entry_id": stale.entry_id})
                        return stale
                    continue
                case _:
                    break
            for name, engine, reason in attempts:
                if reason is not None:
                    trace.add(Layer.FALLBACK, Outcome.DONE, reason, {"engine": engine.name})
                is_own = name == PRIMARY or engine.model == primary.model != ""  # without a name it may be any other
                try:
                    if lease is not None:
                        lease.begin(None if is_own else engine.name)
                    generation = yield from self._generate(name, engine, request, policy, trace, lease)
                    return Answer(generation, is_own, engine.name)
                except EngineFailed as error:
                    failure = error
                    detail: dict[str, Any] = {"error": f"{type(error.cause).__name__}: {error.cause}"}
                    detail |= {"timed_out": True} if isinstance(error.cause, EngineTimeout) else {}
                    is_open = isinstance(error.cause, CircuitOpen)
                    trace.add(
                        Layer.DECODE, Outcome.FAILED, Reason.CIRCUIT_OPEN if is_open else Reason.ENGINE_ERROR, detail
                    )
                    if error.emitted or _is_hopeless(error.cause):
                        raise error.cause from None
        assert failure is not None, "the chain ends only after a failed attempt"
        raise failure.cause from None

    def _stale(self, asked: Asked | None, policy: Policy) -> Generator[Effect, Any, Entry | None]:
        """The expired entry as it is now: it may have been invalidated while the engine was tried."""
        if asked is None:
            return None
        try:
            entry: Entry | None = yield FindExact(asked.partition, asked.exact)
        except StoreError:
            return None
        within_s = policy.stale_if_error_s
        usable = entry is not None and serves_stale(entry, asked.request, policy, self.clock(), within_s)
        return entry if usable else None

    def _other(self, policy: Policy) -> tuple[str, Engine]:
        name = policy.fallback.other_engine or ""
        if name not in self.engines:
            known = ", ".join(sorted(self.engines)) or "none"
            raise ConfigError(f"fallback.other_engine names {name!r}, which the stack was not given; it has: {known}")
        return name, self.engines[name]

    def _generate(
        self,
        name: str,
        engine: Engine,
        request: Request,
        policy: Policy,
        trace: TraceBuilder,
        lease: Lease | None,
    ) -> Generator[Effect, Any, Generation]:
        """Prefix layer and decode for one attempt."""
        if not is_token_engine(engine):
            trace.add(Layer.PREFIX, Outcome.BYPASS, Reason.NOT_IN_PROCESS)
            generation: Generation = yield Generate(
                name, request, deadline_s=policy.fallback.engine_deadline_s, lease=lease
            )
            named = {} if engine.model in ("", request.model) else {"model": engine.model}
            trace.add(Layer.DECODE, Outcome.DONE, Reason.GENERATED, _decode_detail(generation) | named)
            return generation
        prompt: Prompt = yield Prepare(name, request)
        plan = self.prefix.lookup(
            prompt,
            fingerprint=engine.fingerprint,
            model=engine.model,
            tenant=request.tenant,
            policy=policy.prefix,
            fallback=policy.fallback,
            user=request.user,
            unsupported=engine.unsupported_cache,
        )
        try:
            trace.add(Layer.PREFIX, _outcome(plan), plan.lookup.reason, plan.detail)
            computed: Computed = yield Generate(
                name, request, prompt, plan.past, plan.publish_at, plan.kv_dtype, lease=lease
            )
            generation = computed.generation
            cached = generation.usage.cached_tokens
            self.prefix.observe(plan, prompt, computed.prefill_s)
            saved = {
                "saved_s": round(self.prefix.saved_s(plan), 6),
                "reused_bytes": sum(kv.num_bytes for kv in plan.past),
            }
            detail = _decode_detail(generation) | computed.detail | (saved if cached else {})
            trace.add(Layer.DECODE, Outcome.DONE, Reason.GENERATED, detail)
            report = self.prefix.publish(plan, prompt, computed)
            if report is not None:
                trace.add(Layer.SETTLE, Outcome.DONE, report.reason, report.detail)
            return generation
        finally:
            plan.release()


def _is_hopeless(cause: Exception) -> bool:
    """Whether no other attempt, nor another engine, would do better."""
    return isinstance(cause, NOT_RETRIED) or (isinstance(cause, UpstreamError) and cause.status in REFUSED)


def _outcome(plan: PrefixPlan) -> Outcome:
    return Outcome(type(plan.lookup).__name__.lower())


def _decode_detail(generation: Generation) -> dict[str, Any]:
    usage = generation.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "new_tokens": usage.completion_tokens,
        "ttft_s": round(generation.ttft_s, 6),
        "decode_s": round(generation.decode_s, 6),
        "finish": generation.finish_reason,
    }
