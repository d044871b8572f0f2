"""The order of the layers, written once, as a generator of effects.

::

    policy → semantic (exact, by meaning) → prefix → decode → settle
                 │ hit                                   │ error → fallback: retry, other engine, stale, raise
                 └──────────────→ replay ←───────────────┘

Nothing here does I/O: a driver (stack.py, aio.py) performs each effect and resumes the generator with its result. A
driver that is done early closes the generator: leases end, nothing is published.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cachestack.decisions import Bypass, Hit, Layer, Miss, Outcome, Reason, Response
from cachestack.effects import Effect, EngineFailed, FindExact, Generate, Prepare, Touch
from cachestack.engines.base import Computed, Engine, Prompt, is_token_engine
from cachestack.entries import Entry
from cachestack.errors import (
    ConfigError,
    ContextTooLong,
    MissingExtra,
    ModelError,
    RequestError,
    StoreError,
    UsageError,
)
from cachestack.keys import contract_of
from cachestack.policy import Policy
from cachestack.prefix.layer import PrefixLayer, PrefixPlan
from cachestack.requests import Generation, Request, Usage
from cachestack.semantic.layer import Asked, bypass_reason, max_age, partition_of, semantic_lookup
from cachestack.settling import Answer, settle
from cachestack.tracing import TraceBuilder

Run = Generator[Effect, Any, Response]
PRIMARY = "primary"
# Trying again cannot help here: the request, the set-up or the model's limit is what is wrong.
NOT_RETRIED = (UsageError, ConfigError, ModelError, ContextTooLong, MissingExtra)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What the order of the layers needs to know besides the request and its policy."""

    engines: Mapping[str, Engine]
    prefix: PrefixLayer
    encoder_languages: frozenset[str]
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = lambda: secrets.token_hex(12)

    def run(self, request: Request, policy: Policy, primary: Engine, trace: TraceBuilder) -> Run:
        """One request through all layers. Returns the Response; raises what the engine raised.

        `trace` is the caller's, so that it can be read after a failure too.
        """
        asked_at_s = self.clock()
        request = completed(request, policy, primary)
        asked, bypass = self._asked(request, policy)
        trace.add(Layer.POLICY, Outcome.DONE, Reason.POLICY_RESOLVED, {"model": request.model})
        looked_up: Miss | Bypass
        if asked is None:
            looked_up = Bypass(bypass or Reason.DISABLED)
        elif not request.lookup:
            looked_up = Bypass(Reason.NO_LOOKUP)
        else:
            found: Hit[Entry] | Miss | Bypass
            try:
                found = yield from semantic_lookup(asked, policy, self.encoder_languages, asked_at_s)
            except StoreError as error:
                found = Bypass(Reason.STORE_UNAVAILABLE, {"error": str(error)})
            if isinstance(found, Hit):
                trace.add(Layer.SEMANTIC, Outcome.HIT, found.reason, found.detail)
                yield from _touch(found.value, trace)
                return _replay(found.value, trace)
            looked_up = found
        outcome = Outcome.MISS if isinstance(looked_up, Miss) else Outcome.BYPASS
        trace.add(Layer.SEMANTIC, outcome, looked_up.reason, looked_up.detail)
        has_stale = isinstance(looked_up, Miss) and looked_up.has_stale
        answer = yield from self._answer(request, policy, primary, trace, asked if has_stale else None)
        if isinstance(answer, Entry):
            return _replay(answer, trace)
        entry_id = yield from settle(
            self.new_id(), asked, asked_at_s, looked_up, policy, self.encoder_languages, answer, trace
        )
        made = answer.generation
        return Response(made.text, trace.trace(), made.usage, made.finish_reason, entry_id)

    def _asked(self, request: Request, policy: Policy) -> tuple[Asked | None, Reason | None]:
        reason = bypass_reason(request, policy.semantic)
        if reason is not None:
            return None, reason
        try:
            contract = contract_of(request, request.model)
        except (TypeError, ValueError):
            return None, Reason.UNCACHEABLE_ARGUMENT
        return Asked(request, contract, partition_of(request, policy.semantic)), None

    def _answer(
        self, request: Request, policy: Policy, primary: Engine, trace: TraceBuilder, stale_for: Asked | None
    ) -> Generator[Effect, Any, Answer | Entry]:
        """The engine's answer, or what the policy's fallback chain gives instead.

        `stale_for` is the question that has a stale answer, if it has one.
        """
        attempts: list[tuple[str, Engine, Reason | None]]
        failure: EngineFailed | None = None
        for step in ("first", *policy.fallback.engine_error):
            match step:
                case "first":
                    attempts = [(PRIMARY, primary, None)]
                case "retry":
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
                try:
                    generation = yield from self._generate(name, engine, request, policy, trace)
                    return Answer(generation, is_own=engine.model == primary.model)
                except EngineFailed as error:
                    failure = error
                    detail = {"error": f"{type(error.cause).__name__}: {error.cause}"}
                    trace.add(Layer.DECODE, Outcome.FAILED, Reason.ENGINE_ERROR, detail)
                    if error.emitted or isinstance(error.cause, NOT_RETRIED):
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
        within_s = policy.fallback.stale_within_s
        usable = entry is not None and entry.is_stale(self.clock(), max_age(asked.request, policy), within_s)
        return entry if usable else None

    def _other(self, policy: Policy) -> tuple[str, Engine]:
        name = policy.fallback.other_engine or ""
        if name not in self.engines:
            known = ", ".join(sorted(self.engines)) or "none"
            raise ConfigError(f"fallback.other_engine names {name!r}, which the stack was not given; it has: {known}")
        return name, self.engines[name]

    def _generate(
        self, name: str, engine: Engine, request: Request, policy: Policy, trace: TraceBuilder
    ) -> Generator[Effect, Any, Generation]:
        """Prefix layer and decode for one attempt."""
        if not is_token_engine(engine):
            trace.add(Layer.PREFIX, Outcome.BYPASS, Reason.NOT_IN_PROCESS)
            generation: Generation = yield Generate(name, request)
            trace.add(Layer.DECODE, Outcome.DONE, Reason.GENERATED, _decode_detail(generation))
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
            computed: Computed = yield Generate(name, request, prompt, plan.past, plan.publish_at, plan.kv_dtype)
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


def completed(request: Request, policy: Policy, engine: Engine) -> Request:
    """The request with what it left open filled in. Raises RequestError for what the in-process engine cannot do."""
    if not request.model:
        request = replace(request, model=engine.model)
    if not is_token_engine(engine):
        return request
    sampling = request.sampling
    for name, given in (
        ("n > 1", sampling.n > 1),
        ("tools", request.tools),
        ("response_format", request.response_format),
    ):
        if given:
            raise RequestError(f"the in-process engine does not support {name}; leave it out, or use another engine")
    if sampling.max_new_tokens is None:
        sampling = replace(sampling, max_new_tokens=policy.decode.max_new_tokens)
    return replace(request, sampling=sampling)


def _touch(entry: Entry, trace: TraceBuilder) -> Generator[Effect, Any, None]:
    """Note the use. That it cannot be noted is no reason to keep an answer back."""
    try:
        yield Touch(entry.partition, entry.entry_id)
    except StoreError as error:
        trace.add(Layer.SETTLE, Outcome.FAILED, Reason.STORE_FAILED, {"error": str(error)})


def _replay(entry: Entry, trace: TraceBuilder) -> Response:
    trace.add(Layer.DECODE, Outcome.DONE, Reason.REPLAYED, {"chars": len(entry.answer), "saved_s": entry.engine_s})
    usage = Usage(entry.prompt_tokens, entry.prompt_tokens, entry.completion_tokens)
    return Response(entry.answer, trace.trace(), usage, entry.finish_reason, entry.entry_id)


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
