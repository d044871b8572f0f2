"""The contract of an engine: what turns a request into text.

Two kinds. A `TextEngine` takes a request and yields text (a wrapped function, a remote server). A `TokenEngine` works
in this process, so that the prefix layer can hand it KV runs and take new ones back.

Streams are generators: they yield pieces of text and *return* the Generation. Closing one early stops the work at the
next token; nothing of a closed or failed stream is ever published.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from typing_extensions import TypeIs

from cachestack.decisions import Reason
from cachestack.requests import Generation, Piece, Request

R = TypeVar("R")
TextStream = Generator[Piece, None, Generation]


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place in the prompt where reuse may end: all tokens before `position` are the same whatever follows."""

    position: int
    kind: Literal["system", "examples", "history", "mark", "turn"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A tokenised request.

    `ids`: all prompt tokens. `boundaries`: ascending, each token-clean and below `len(ids)`. `refusal`: why there is
    no boundary where the structure of the messages suggested one (NO_BOUNDARY, UNCLEAN_BOUNDARY, ...).
    `nearest_clean`: for an unclean one, the last place before it up to which the tokens do not depend on what follows.
    """

    ids: tuple[int, ...]
    boundaries: tuple[Boundary, ...] = ()
    refusal: Reason | None = None
    nearest_clean: Boundary | None = None


@dataclass(frozen=True, slots=True)
class KVRun:
    """KV of consecutive tokens: `payload` is the engine's own, opaque to all others.

    Covers prompt tokens `[start, start + num_tokens)`. Only the first `num_tokens` tokens of the payload are meant.
    `num_bytes` counts their memory.
    """

    payload: Any
    start: int
    num_tokens: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Computed:
    """What a token stream made besides text: KV runs that end at the boundaries asked for, finite and complete.

    `ids`: the tokens that the runs refer to, from prompt token 0: the prompt, and the generated tokens whose KV exists.
    `finite` is False when any value was not finite: then `runs` is empty. `fingerprint` is the engine's while all of
    it was computed, empty where the model was changed meanwhile, None where the engine does not say.
    """

    generation: Generation
    runs: tuple[KVRun, ...] = ()
    ids: tuple[int, ...] = ()
    finite: bool = True
    fingerprint: str | None = None
    prefill_s: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)


TokenStream = Generator[str, None, Computed]


class TextEngine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str:
        """What the contract names: two engines with equal `model` answer alike."""
        ...

    def stream(self, request: Request) -> TextStream: ...


class AsyncTextEngine(TextEngine, Protocol):
    """A TextEngine that works in asyncio; `stream` is the same for callers that are not."""

    def astream(self, request: Request) -> AsyncGenerator[Piece | Generation, None]:
        """Pieces as they come, and the Generation as the last item. Closing it early cancels the call upstream."""
        ...


class TokenEngine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """What must be equal for KV to be reusable. Loads the model if need be."""
        ...

    @property
    def unsupported_cache(self) -> str | None:
        """Why this model's cache cannot be kept and forked, or None."""
        ...

    def prepare(self, request: Request) -> Prompt:
        """Tokenise once, and find the clean boundaries. Raises ContextTooLong."""
        ...

    def stream_tokens(
        self,
        request: Request,
        prompt: Prompt,
        past: Sequence[KVRun],
        publish_at: Sequence[int],
        *,
        kv_dtype: str | None = None,
    ) -> TokenStream:
        """Generate after `past` (runs that cover a proper beginning of the prompt, never written to).

        The prefill is split at each position of `publish_at` (ascending, above the tokens in `past`), and the runs
        between them are returned in `Computed.runs`. A last position of `len(prompt.ids)` splits nothing: it asks for
        the run of the remainder too, the prompt's last tokens and the generated ones together. Runs come in `kv_dtype`
        (None: the model's), and what follows one is computed from it as it is kept.
        """
        ...

    def compute(
        self, prompt: Prompt, past: Sequence[KVRun], publish_at: Sequence[int], *, kv_dtype: str | None = None
    ) -> Computed:
        """The runs alone, in the passes that `stream_tokens` makes for the same arguments: nothing is computed after
        the last of `publish_at`, and nothing generated. Not for engines with an `unsupported_cache`."""
        ...


Engine = TextEngine | TokenEngine


def is_token_engine(engine: Engine) -> TypeIs[TokenEngine]:
    """Whether the prefix layer can work with it. Looks at the class only: no property is read, no model loaded."""
    return hasattr(type(engine), "stream_tokens")


def is_async_engine(engine: Engine) -> TypeIs[AsyncTextEngine]:
    """Whether it can be awaited. Looks at the class only."""
    return hasattr(type(engine), "astream")


def anew(engine: Engine) -> Engine:
    """The engine for a call in the background, beside the one that it was given for. One that belongs to a single call,
    and remembers what came of it, makes another."""
    another: Engine = engine.anew() if hasattr(type(engine), "anew") else engine  # type: ignore[union-attr]
    return another


def exhaust(stream: Generator[Piece, None, R]) -> R:
    """Run a stream to its end; what it returned."""
    while True:
        try:
            next(stream)
        except StopIteration as stop:
            result: R = stop.value
            return result
