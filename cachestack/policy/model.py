"""The sections of a policy for what runs on a model: prefixes, decoding, and what happens when an engine fails."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from cachestack.policy.section import Bytes, Seconds, Section


class PrefixPolicy(Section):
    """The prefix KV layer (in-process engine only)."""

    enabled: bool = True
    """Off: every prompt is computed whole."""

    min_tokens: Annotated[int, Field(ge=1)] = 16
    """A shorter prefix is not kept: it would cost more to look after than to compute."""

    keep_conversations: bool = True
    """Keep the KV of a conversation's turns, so that the next turn computes only what is new."""

    max_bytes: Bytes | None = None
    """This tenant's share of the KV pool; None: the whole pool's budget."""

    eviction: Literal["value", "lru"] = "value"
    """Which kept KV makes room for this tenant's: what saves the fewest seconds a byte and is used least, or what was
    used longest ago."""

    kv_dtype: Literal["model", "float32", "bfloat16"] = "model"
    """Precision in which KV is kept. `bfloat16` takes half the memory of a float32 model and rounds keys and values to
    three significant digits: what is computed after it differs in the third digit, cold or warm alike."""

    max_pinned_bytes: Bytes | None = None
    """How much this tenant may pin; None: only the pool's limit holds, half of it for all pins."""


class DecodePolicy(Section):
    """Decoding on the in-process engine."""

    max_new_tokens: Annotated[int, Field(ge=1)] = 256
    """Used when the request does not say."""

    batch_wait_ms: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 3.0
    """How long `stack.score` holds a pass back for calls that are known to be on their way; alone, none waits."""


class FallbackPolicy(Section):
    """What happens on doubt and on failure."""

    semantic_doubt: Literal["miss", "serve"] = "miss"
    """Where no verifier could settle it: call the model, or serve what the guards let through."""

    unclean_boundary: Literal["full_prompt", "nearest_clean"] = "full_prompt"
    """Where the stable part does not end on a token: compute the whole prompt, or reuse up to a clean place before."""

    engine_error: tuple[Literal["retry", "other_engine", "stale", "raise"], ...] = ("retry", "raise")
    """Tried in order until one answers. `raise` ends the list."""

    num_retries: Annotated[int, Field(ge=1, le=10)] = 1
    """How often `retry` calls the engine again."""

    other_engine: str | None = None
    """The engine for `other_engine`, by the name it was given to the stack."""

    engine_deadline_s: Seconds | None = None
    """How long a wrapped function or a remote engine may give nothing back, before its first piece and between two;
    after that it has failed. None: as long as it takes. The in-process engine has none."""

    stale_within_s: Seconds = 3600.0
    """How long after its expiry an answer may still serve as `stale`."""

    memory_pressure: Literal["evict", "skip"] = "evict"
    """When a new KV prefix does not fit the budget: evict others (see prefix.eviction), or do not keep the new one."""

    @model_validator(mode="after")
    def _chain(self) -> FallbackPolicy:
        if "other_engine" in self.engine_error and not self.other_engine:
            raise ValueError("engine_error names other_engine, but fallback.other_engine is not set")
        if len(set(self.engine_error)) != len(self.engine_error):
            raise ValueError("engine_error names a step twice")
        if "raise" in self.engine_error[:-1]:
            raise ValueError("raise must be the last step of engine_error")
        return self
