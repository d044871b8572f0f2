"""A tenant's policy: what each layer may do, and what happens when it doubts."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from cachestack.prices import BUILT_IN, ModelPrice, price_table, read_again

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Similarity = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _verifier(name: str) -> str:
    if not re.fullmatch(r"local|lexical|cross_encoder(:.+)?|judge:.+", name):
        raise ValueError("not a verifier; allowed: local, lexical, cross_encoder, cross_encoder:NAME, judge:ENGINE")
    return name


VerifierName = Annotated[str, AfterValidator(_verifier)]


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

    reject_below: Similarity = 0.50
    """Cosine below which nothing is served."""

    accept_from: Similarity = 0.90
    """Cosine from which a sensitive scope may be served, and from which the guards alone decide where `verifiers` is
    empty."""

    sensitive: bool = False
    """True: nothing is served below `accept_from`, nor where any guard has even a doubt."""

    verifiers: tuple[VerifierName, ...] = ("local",)
    """Who weighs what the guards found. The first gives a score; the others are asked, in order, where it lies between
    `doubt_score` and `accept_score`. `local` is built in, `cross_encoder` is slower and better; `cross_encoder:NAME`
    takes any model of that kind, `judge:ENGINE` asks a language model. Empty: any doubt of a guard refuses."""

    accept_score: Similarity = 0.75
    """Score from which the first verifier's word is enough."""

    doubt_score: Similarity = 0.40
    """Score below which nothing is served; between the two, the next verifier decides, and without one it is a miss."""

    verifier_deadline_ms: Annotated[float, Field(gt=0, le=60_000, allow_inf_nan=False)] = 1000.0
    """How long a verifier after the first may take; after that it has not agreed. The first load is not counted."""

    num_candidates: Annotated[int, Field(ge=1, le=100)] = 5
    """How many nearest entries are looked at."""

    walls: frozenset[Literal["user", "role"]] = frozenset()
    """Who is separated within the tenant. A request without that principal is then not cached at all."""

    max_temperature: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)] = 0.3
    """A request with a higher temperature is not cached. One that sets none is."""

    languages: Literal["encoder", "any"] | frozenset[str] = "encoder"
    """Languages served by meaning: `encoder` takes what the encoder was trained for; a list is what you vouch for."""

    unguarded_languages: Literal["exact_only", "serve"] = "exact_only"
    """What to do by meaning in a language that has no guards (guarded: English, French)."""

    cross_language: bool = False
    """Whether an answer to a question in one language may serve a question in another one."""

    encoder_deadline_ms: Annotated[float, Field(gt=0, le=60_000, allow_inf_nan=False)] = 1000.0
    """How long a request waits for its question's embedding; after that it is a miss. The first load is not counted."""

    allow_tools: bool = False
    """Whether requests that carry tools may be answered from the cache."""

    @model_validator(mode="after")
    def _bands(self) -> SemanticPolicy:
        if self.accept_from < self.reject_below:
            raise ValueError(f"accept_from ({self.accept_from}) must not be below reject_below ({self.reject_below})")
        if self.accept_score < self.doubt_score:
            raise ValueError(f"accept_score ({self.accept_score}) must not be below doubt_score ({self.doubt_score})")
        in_place = ("local", "lexical")
        if self.verifiers and self.verifiers[0] not in in_place:
            raise ValueError(f"verifiers must begin with local or lexical: for example [local, {self.verifiers[0]}]")
        if any(name in in_place for name in self.verifiers[1:]):
            raise ValueError("of verifiers only the first can be local or lexical; leave the others out")
        if len(set(self.verifiers)) != len(self.verifiers):
            raise ValueError("verifiers names one twice; each is asked once")
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


class RetentionPolicy(Section):
    """How long and how much is kept."""

    ttl_s: Seconds = 86_400.0
    """Age at which an entry stops being served. Absolute: being used does not prolong it."""

    max_bytes: Bytes = 256 * 1024 * 1024
    """Entries of one tenant; beyond it the least recently used go."""

    max_entry_bytes: Bytes = 256 * 1024
    """A larger answer is not kept."""


class PricePolicy(Section):
    """Prices, for cost figures. Without any for a model its costs are not shown."""

    table: str | None = BUILT_IN
    """A price table by model: a file, `built-in` (dated; check it), or none."""

    input_per_million: Price | None = None
    """Price of a million prompt tokens, of any model. This or the next one set, no table is read."""

    output_per_million: Price | None = None
    """Price of a million generated tokens, of any model."""

    cached_read_per_million: Price | None = None
    """Price of a million prompt tokens that the provider had in its cache; None: as the others."""

    cache_write_per_million: Price | None = None
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


Count = Annotated[int, Field(ge=0)]
Money = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LimitsPolicy(Section):
    """How much may be asked for. None: no limit. What the cache serves counts as a request, and as nothing else."""

    requests_per_minute: Count | None = None
    """Requests of the tenant in any 60 seconds."""

    tokens_per_minute: Count | None = None
    """Tokens of prompts and answers that engines worked on for the tenant, in any 60 seconds."""

    spend_per_day: Money | None = None
    """What engines cost the tenant in any 24 hours, in the currency of the prices."""

    max_concurrent: Count | None = None
    """Requests of the tenant that may be under way at once."""

    user_requests_per_minute: Count | None = None
    """As `requests_per_minute`, for each user of the tenant; those without a user count as one."""

    user_tokens_per_minute: Count | None = None
    """As `tokens_per_minute`, for each user."""

    user_spend_per_day: Money | None = None
    """As `spend_per_day`, for each user."""

    user_max_concurrent: Count | None = None
    """As `max_concurrent`, for each user."""

    @property
    def has_spend_limit(self) -> bool:
        return self.spend_per_day is not None or self.user_spend_per_day is not None


class Policy(Section):
    """One tenant's policy: a section a layer, one for fallback, one for retention, one for prices, one for limits."""

    semantic: SemanticPolicy = SemanticPolicy()
    prefix: PrefixPolicy = PrefixPolicy()
    decode: DecodePolicy = DecodePolicy()
    fallback: FallbackPolicy = FallbackPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    prices: PricePolicy = PricePolicy()
    limits: LimitsPolicy = LimitsPolicy()
