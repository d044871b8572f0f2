"""What a layer answers, as values: Hit | Partial | Miss | Bypass, each with a Reason from a closed list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from cachestack.requests import FinishReason, Usage

T = TypeVar("T")
Detail = Mapping[str, Any]


class Layer(StrEnum):
    POLICY = "policy"
    SEMANTIC = "semantic"
    PREFIX = "prefix"
    DECODE = "decode"
    FALLBACK = "fallback"
    SETTLE = "settle"


class Outcome(StrEnum):
    HIT = "hit"
    PARTIAL = "partial"
    MISS = "miss"
    BYPASS = "bypass"
    DONE = "done"
    FAILED = "failed"


class Reason(StrEnum):
    """Why. Grouped by layer."""

    # policy
    POLICY_RESOLVED = "policy_resolved"
    # semantic: hits
    EXACT = "exact"
    SIMILAR = "similar"
    VALIDATED = "validated"
    STALE = "stale"
    # semantic: misses
    NO_ENTRY = "no_entry"
    EXPIRED = "expired"
    BELOW_THRESHOLD = "below_threshold"
    GUARD_REJECTED = "guard_rejected"
    NOT_VALIDATED = "not_validated"
    SENSITIVE_SCOPE = "sensitive_scope"
    CONTEXT_DIFFERS = "context_differs"
    SHADOW = "shadow"
    SUSPENDED = "suspended"
    DUE = "due"
    MOVES = "moves"
    # semantic: by meaning not tried (the exact tier was)
    NO_ENCODER = "no_encoder"
    ENCODER_FAILED = "encoder_failed"
    ENCODER_TIMEOUT = "encoder_timeout"
    ENCODER_LANGUAGE = "encoder_language"
    INDEX_FAILED = "index_failed"
    BEYOND_WINDOW = "beyond_window"
    NOT_A_QUESTION = "not_a_question"
    EXACT_ONLY = "exact_only"
    # semantic: bypass
    DISABLED = "disabled"
    TEMPERATURE = "temperature"
    TOOLS = "tools"
    NO_LOOKUP = "no_lookup"
    NO_PRINCIPAL = "no_principal"
    MANY_ANSWERS = "many_answers"
    UNCACHEABLE_ARGUMENT = "uncacheable_argument"
    STORE_UNAVAILABLE = "store_unavailable"
    NOT_REACHED = "not_reached"
    # prefix
    PREFIX_FULL = "prefix_full"
    PREFIX_PARTIAL = "prefix_partial"
    PREFIX_COLD = "prefix_cold"
    NO_BOUNDARY = "no_boundary"
    UNCLEAN_BOUNDARY = "unclean_boundary"
    PREFIX_TOO_SHORT = "prefix_too_short"
    UNSUPPORTED_CACHE = "unsupported_cache"
    NOT_IN_PROCESS = "not_in_process"
    OVER_BUDGET = "over_budget"
    MOSTLY_KEPT = "mostly_kept"
    PINNED = "pinned"
    PIN_OVER_BUDGET = "pin_over_budget"
    PREFIX_GONE = "prefix_gone"
    MODEL_CHANGED = "model_changed"
    # decode and fallback
    GENERATED = "generated"
    REPLAYED = "replayed"
    ENGINE_ERROR = "engine_error"
    RETRIED = "retried"
    OTHER_ENGINE = "other_engine"
    CANCELLED = "cancelled"
    NOT_CACHED = "not_cached"
    SHARED = "shared"
    CIRCUIT_OPEN = "circuit_open"
    RATE_LIMITED = "rate_limited"
    SPEND_LIMITED = "spend_limited"
    # settle
    STORED = "stored"
    NO_STORE = "no_store"
    TRUNCATED = "truncated"
    EMPTY_ANSWER = "empty_answer"
    NOT_TEXT = "not_text"
    FILTERED = "filtered"
    TOO_LARGE = "too_large"
    INVALIDATED = "invalidated"
    STORE_FAILED = "store_failed"
    PUBLISHED = "published"
    NOT_FINITE = "not_finite"
    REFUSAL = "refusal"
    ERROR_TEXT = "error_text"
    CUT_OFF = "cut_off"
    PLACEHOLDER = "placeholder"
    ASKS_BACK = "asks_back"
    SECRET = "secret"  # nosec B105: the name of a reason
    PERSONAL_DATA = "personal_data"
    UNCONFIRMED = "unconfirmed"
    DISAGREED = "disagreed"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class Hit(Generic[T]):
    """`value` can be used as it is."""

    reason: Reason
    value: T
    detail: Detail = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Partial(Generic[T]):
    """`value` saves a part of the work."""

    reason: Reason
    value: T
    detail: Detail = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Best:
    """A candidate that was not served: its entry and the first verifier's score. `would_serve`: it would have been,
    were it not for shadow mode, or for the time that has come to compare."""

    entry: Any
    score: float
    would_serve: bool = False


@dataclass(frozen=True, slots=True)
class Miss:
    """Nothing usable, but what was learnt on the way, so that nothing is done twice.

    `vector` is the question's embedding (float32 bytes), or None where matching by meaning does not apply, `states` its
    packed token states; `has_stale` says that there is an expired entry of the very same question that may still serve
    as a stale answer. `best` is the candidate that came nearest to being served, where a score says how near.
    """

    reason: Reason
    detail: Detail = field(default_factory=dict)
    vector: bytes | None = None
    encoder: str | None = None
    language: str | None = None
    has_stale: bool = False
    states: bytes = b""
    best: Best | None = None


@dataclass(frozen=True, slots=True)
class Bypass:
    """The layer does not apply to this request."""

    reason: Reason
    detail: Detail = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of one layer, how long it took, and the evidence."""

    layer: Layer
    outcome: Outcome
    reason: Reason
    seconds: float = 0.0
    detail: Detail = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that was decided about one request; `print(trace)` draws it as a tree."""

    request_id: str
    tenant: str
    steps: tuple[Step, ...]
    seconds: float = 0.0

    def step(self, layer: Layer) -> Step | None:
        """The last step of a layer, or None."""
        for step in reversed(self.steps):
            if step.layer is layer:
                return step
        return None

    @property
    def served_from(self) -> str:
        """`exact`, `semantic`, `stale`, `shared` (another request's call of the engine) or `engine`."""
        found, is_shared = "", False
        for step in self.steps:
            if step.reason is Reason.STALE:
                return "stale"
            is_shared |= step.reason is Reason.SHARED
            if step.layer is Layer.SEMANTIC:
                hit = "exact" if step.reason is Reason.EXACT else "semantic"
                found = hit if step.outcome is Outcome.HIT else ""
        return found or ("shared" if is_shared else "engine")

    def __str__(self) -> str:
        lines = [f"request {self.request_id} · tenant {self.tenant} · {_milliseconds(self.seconds)}"]
        for i, s in enumerate(self.steps):
            branch = "└─" if i == len(self.steps) - 1 else "├─"
            evidence = " · ".join(f"{k}={_short(v)}" for k, v in s.detail.items())
            head = f"{branch} {s.layer.value:<9}{s.outcome.value:<8}{s.reason.value}"
            lines.append(f"{head}{'  ' + evidence if evidence else ''}  [{_milliseconds(s.seconds)}]")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The trace as JSON-able values."""
        return {
            "request_id": self.request_id,
            "tenant": self.tenant,
            "served_from": self.served_from,
            "seconds": self.seconds,
            "steps": [
                {
                    "layer": s.layer.value,
                    "outcome": s.outcome.value,
                    "reason": s.reason.value,
                    "seconds": s.seconds,
                    "detail": dict(s.detail),
                }
                for s in self.steps
            ],
        }


@dataclass(frozen=True, slots=True)
class Response:
    """An answer and how it came about. `hit_id` names the cached entry it came from or was stored as.

    `body` is the provider's whole answer where a remote engine has just made it; None for what is replayed.
    `is_text` is as in Generation.
    """

    text: str
    trace: Trace
    usage: Usage = field(default_factory=Usage)
    finish_reason: FinishReason = "stop"
    hit_id: str | None = None
    body: Mapping[str, Any] | None = None
    is_text: bool = True


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _short(value: Any) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
