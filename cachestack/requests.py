"""What is asked and what is answered: frozen values, standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cachestack.errors import RequestError

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
Dialect = Literal["", "openai.chat", "openai.completions", "openai.responses", "anthropic.messages"]
"""Whose shape a body has; empty: none, the request was built from values."""
PASSED_HEADERS: Mapping[Dialect, tuple[str, ...]] = {
    "openai.chat": ("openai-beta",),
    "openai.completions": ("openai-beta",),
    "openai.responses": ("openai-beta",),
    "anthropic.messages": ("anthropic-beta",),
}
"""Headers of a dialect that may change the answer: they stand in `Request.extra`, and an engine of the dialect sends
them on."""
ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `content` is text; other content goes into `Request.extra` and is compared, never interpreted."""

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise RequestError(f"message role {self.role!r} is not known; allowed: {', '.join(ROLES)}")
        if not isinstance(self.content, str):
            raise RequestError(f"message content must be text, not {type(self.content).__name__}")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `None` means the caller did not say, which is not the same as any value."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    max_new_tokens: int | None = None
    n: int = 1

    def __post_init__(self) -> None:
        t, p = self.temperature, self.top_p
        _check_number("temperature", t)
        _check_number("top_p", p)
        for name in ("seed", "max_new_tokens", "n"):
            _check_whole(name, getattr(self, name), optional=name != "n")
        _check_texts("stop", self.stop)
        if t is not None and not (math.isfinite(t) and 0 <= t <= 5):
            raise RequestError(f"temperature must be between 0 and 5, not {t}")
        if p is not None and not (math.isfinite(p) and 0 < p <= 1):
            raise RequestError(f"top_p must be above 0 and at most 1, not {p}")
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise RequestError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        if self.n < 1:
            raise RequestError(f"n must be at least 1, not {self.n}")
        if any(not s for s in self.stop):
            raise RequestError("a stop string must not be empty")


@dataclass(frozen=True, slots=True)
class Request:
    """One request as every layer sees it.

    `tenant`, `user` and `role` come from the caller's credentials, never from the text. `extra` holds every
    parameter that CacheStack does not know; all of it counts in the contract. `stable_messages` marks how many
    leading messages are the same from call to call (None: found from the roles). `part_versions` are those of the
    parts that the messages were made of, in order (see `prompts.StructuredPrompt`). `store` and `lookup` switch
    writing to and reading from the semantic cache for this request alone; `only_if_cached` forbids calling an engine.
    `max_age_s` is how old a cached answer may be for this request, whatever it is kept for. `epoch` is the caller's
    authorisation epoch: entries of another epoch are never served.

    `body` is the request in its provider's shape (`dialect`), where it came as one. A remote engine of the same
    dialect passes it on as it is; nothing compares it, so all of it that can change the answer stands in the other
    fields as well.
    """

    messages: tuple[Message, ...]
    tenant: str = "default"
    user: str | None = None
    role: str | None = None
    model: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    tools: tuple[Any, ...] = ()
    response_format: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    version: str | None = None
    part_versions: tuple[str | None, ...] = ()
    ttl_s: float | None = None
    stable_messages: int | None = None
    store: bool = True
    lookup: bool = True
    only_if_cached: bool = False
    max_age_s: float | None = None
    epoch: int = 0
    dialect: Dialect = ""
    body: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not self.messages:
            raise RequestError("a request needs at least one message")
        if not all(isinstance(message, Message) for message in self.messages):
            raise RequestError("messages must be a tuple of Message; build_request takes text and dicts too")
        if not self.messages[-1].content.strip() and self.messages[-1].role == "user":
            raise RequestError("the prompt is empty; give the text of the user's message")
        for name in ("tenant", "model"):
            _check_text(name, getattr(self, name))
        for name in ("user", "role", "version"):
            if getattr(self, name) is not None:
                _check_text(name, getattr(self, name))
        for name in ("user", "role"):
            if getattr(self, name) == "":  # a caller's word for nobody: they must not count as one person
                object.__setattr__(self, name, None)
        _check_texts("tags", self.tags)
        if not isinstance(self.part_versions, tuple):
            raise RequestError(f"part_versions must be a tuple of texts and None, not {self.part_versions!r}")
        _check_texts("part_versions", tuple(v for v in self.part_versions if v is not None))
        _check_number("ttl_s", self.ttl_s)
        _check_number("max_age_s", self.max_age_s)
        _check_whole("epoch", self.epoch, optional=False)
        if not isinstance(self.extra, Mapping):
            raise RequestError(f"extra must map names to values, not be a {type(self.extra).__name__}")
        if not self.tenant or len(self.tenant) > 256:
            raise RequestError("tenant must be a name of 1 to 256 characters")
        if self.ttl_s is not None and not (math.isfinite(self.ttl_s) and self.ttl_s > 0):
            raise RequestError(f"ttl_s must be a positive number of seconds, not {self.ttl_s}")
        if self.max_age_s is not None and not self.max_age_s >= 0:
            raise RequestError(f"max_age_s must be 0 or more seconds, not {self.max_age_s}")
        if self.stable_messages is not None and not 0 <= self.stable_messages <= len(self.messages):
            raise RequestError(
                f"stable_messages must be between 0 and {len(self.messages)} (the number of messages), "
                f"not {self.stable_messages}"
            )

    @property
    def question(self) -> str:
        """The text of the last message: what is compared by meaning when the last message is the user's."""
        return self.messages[-1].content

    @property
    def system(self) -> tuple[str, ...]:
        return tuple(m.content for m in self.messages if m.role in ("system", "developer"))


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer. `cached_tokens` of the prompt were not computed again; `cache_write_tokens` of it are
    those that a provider has put into its own cache, where it says so."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Generation:
    """What an engine made: finished text, why it ended, what it cost.

    `ttft_s` is the time to the first token, `decode_s` the time of all later ones together. `body` is the provider's
    whole answer, in the dialect of the request, where the engine is remote. `is_text`: the text is all there is to it;
    an answer with tool calls, a refusal or log-probabilities is not, and is never kept.
    """

    text: str
    finish_reason: FinishReason = "stop"
    usage: Usage = field(default_factory=Usage)
    ttft_s: float = 0.0
    decode_s: float = 0.0
    body: Mapping[str, Any] | None = None
    is_text: bool = True


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a remote engine's stream that is more than text: one event's JSON, in the request's dialect."""

    body: Mapping[str, Any]


Piece = str | Delta
"""What an engine streams."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a streamed answer; the last one has a `finish_reason` and the usage.

    `delta` is set where the piece is more than text; then `text` is empty.
    """

    text: str
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    delta: Delta | None = None


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise RequestError(f"{name} must be text, not {value!r} ({type(value).__name__})")


def _check_texts(name: str, values: object) -> None:
    if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
        raise RequestError(f"{name} must be a tuple of texts, not {values!r}")


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not (value is None or isinstance(value, (int, float))):
        raise RequestError(f"{name} must be a number, not {value!r}")


def _check_whole(name: str, value: object, *, optional: bool) -> None:
    if isinstance(value, bool) or not (isinstance(value, int) or (optional and value is None)):
        raise RequestError(f"{name} must be a whole number, not {value!r}")


def as_messages(prompt: str | Sequence[Message | Mapping[str, Any]], system: str | None = None) -> tuple[Message, ...]:
    """Messages from what callers write: a string, or messages as dicts with `role` and `content`.

    Raises RequestError for anything else. `system` is put first.
    """
    head = (Message("system", system),) if system is not None else ()
    if isinstance(prompt, str):
        return (*head, Message("user", prompt))
    if isinstance(prompt, (bytes, Mapping)) or not isinstance(prompt, Sequence):
        raise RequestError(f"a prompt is text or a list of messages, not {type(prompt).__name__}")
    turns: list[Message] = list(head)
    for item in prompt:
        if isinstance(item, Message):
            turns.append(item)
        elif isinstance(item, Mapping) and "role" in item and "content" in item:
            unknown = set(item) - {"role", "content"}
            if unknown:
                raise RequestError(f"message keys {sorted(unknown)} are not supported; allowed: role, content")
            turns.append(Message(item["role"], item["content"]))
        else:
            raise RequestError("each message needs the keys role and content")
    return tuple(turns)
