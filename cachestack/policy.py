"""A tenant's policy: what each layer may do, and what happens when it doubts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Similarity = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0)]


class Section(BaseModel):
    """A part of a policy: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and field.annotation is not bool:
            raise ValueError("true and false are no numbers")
        return value


class SemanticPolicy(Section):
    """The semantic layer."""

    enabled: bool = True
    """Off: every request goes to the model."""

    by_meaning: bool = True
    """Off: only the exact same question hits."""

    reject_below: Similarity = 0.80
    """Cosine below which nothing is served."""

    accept_from: Similarity = 0.90
    """Cosine from which an entry is served when the guards agree; between the two, a verifier must agree too."""

    sensitive: bool = False
    """True: nothing is ever served from the middle band."""

    num_candidates: Annotated[int, Field(ge=1, le=100)] = 8
    """How many nearest entries are looked at."""

    walls: frozenset[Literal["user", "role"]] = frozenset()
    """Who is separated within the tenant. A request without that principal is then not cached at all."""

    max_temperature: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)] = 0.3
    """A request with a higher temperature is not cached. One that sets none is."""

    languages: Literal["encoder", "any"] | frozenset[str] = "encoder"
    """Languages served by meaning: `encoder` takes what the encoder was trained for; a list is what you vouch for."""

    unguarded_languages: Literal["exact_only", "serve"] = "exact_only"
    """What to do by meaning in a language that has no guards (guarded: English, French)."""

    allow_tools: bool = False
    """Whether requests that carry tools may be answered from the cache."""

    @model_validator(mode="after")
    def _bands(self) -> SemanticPolicy:
        if self.accept_from < self.reject_below:
            raise ValueError(f"accept_from ({self.accept_from}) must not be below reject_below ({self.reject_below})")
        return self


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
    """In the middle band, where the verifier cannot decide: call the model, or serve what the guards let through."""

    unclean_boundary: Literal["full_prompt", "nearest_clean"] = "full_prompt"
    """Where the stable part does not end on a token: compute the whole prompt, or reuse up to a clean place before."""

    engine_error: tuple[Literal["retry", "other_engine", "stale", "raise"], ...] = ("retry", "raise")
    """Tried in order until one answers. `raise` ends the list."""

    num_retries: Annotated[int, Field(ge=1, le=10)] = 1
    """How often `retry` calls the engine again."""

    other_engine: str | None = None
    """The engine for `other_engine`, by the name it was given to the stack."""

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


class RetentionPolicy(Section):
    """How long and how much is kept."""

    ttl_s: Seconds = 86_400.0
    """Age at which an entry stops being served. Absolute: being used does not prolong it."""

    max_bytes: Bytes = 256 * 1024 * 1024
    """Entries of one tenant; beyond it the least recently used go."""

    max_entry_bytes: Bytes = 256 * 1024
    """A larger answer is not kept."""


class PricePolicy(Section):
    """Prices, for cost figures. Without them costs are not shown."""

    input_per_million: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Price of a million prompt tokens."""

    output_per_million: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Price of a million generated tokens."""

    currency: str = "USD"


class Policy(Section):
    """One tenant's policy: a section a layer, one for fallback, one for retention, one for prices."""

    semantic: SemanticPolicy = SemanticPolicy()
    prefix: PrefixPolicy = PrefixPolicy()
    decode: DecodePolicy = DecodePolicy()
    fallback: FallbackPolicy = FallbackPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    prices: PricePolicy = PricePolicy()
