"""What the pipeline asks its driver to do. Each effect has one kind of result, named in its docstring."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from cachestack.engines.base import Engine, KVRun, Prompt
from cachestack.entries import Entry
from cachestack.keys import Contract, Partition
from cachestack.leases import Lease, Seat
from cachestack.policy import Policy
from cachestack.requests import Request


@dataclass(frozen=True, slots=True)
class FindExact:
    """→ Entry | None (expired entries too)."""

    partition: Partition
    exact: str


@dataclass(frozen=True, slots=True)
class Embed:
    """→ Embedding, or the Reason why the text is not matched by meaning (window; encoder: none, failed, late)."""

    text: str
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class EmbedFormer:
    """→ Embedding by the encoder that was in use before; or None, where nothing of the partition can be its."""

    text: str
    partition: Partition
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Embedding:
    """`vector`: float32 little-endian, unit length; `encoder`: the encoder's fingerprint.

    `states`: what is kept of the text's token states, packed; empty where nothing is. `has_former`: there was another
    encoder before this one, and some entries may still be that one's.
    """

    vector: bytes
    encoder: str
    states: bytes = b""
    has_former: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """→ list[Candidate], best first, expired ones too; or INDEX_FAILED. Raises StoreError."""

    partition: Partition
    contract: Contract
    vector: bytes
    encoder: str
    num_candidates: int


@dataclass(frozen=True, slots=True)
class Verify:
    """→ Agreement. `verifier` is named as in the policy; `score` is what the first verifier gave the pair. Never
    raises: a verifier that fails or takes too long does not agree."""

    verifier: str
    cached: str
    asked: str
    score: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Consult:
    """→ Terms, or None where no budget is kept. What the error budget says of this question; asked for only where the
    policy has one. Never raises."""

    partition: Partition
    exact: str
    language: str | None
    encoder: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class NoteServed:
    """→ None. An answer was served by meaning under a budget. Never raises, and waits for nothing."""

    request_id: str
    request: Request
    partition: Partition
    exact: str
    entry: Entry
    score: float
    language: str | None
    policy: Policy


@dataclass(frozen=True, slots=True)
class NoteMissed:
    """→ None. The engine answered under a budget what `best` might have. Never raises, and waits for nothing."""

    request: Request
    partition: Partition
    exact: str
    entry: Entry
    score: float
    would_serve: bool
    answer: str
    language: str | None
    policy: Policy


@dataclass(frozen=True, slots=True)
class Prepare:
    """→ Prompt."""

    engine: str
    request: Request


@dataclass(frozen=True, slots=True)
class Generate:
    """→ Generation (text engines) or Computed (token engines). The driver passes the text on as it comes, to the
    followers of `lease` too. `deadline_s`: how long a text engine may be silent."""

    engine: str
    request: Request
    prompt: Prompt | None = None
    past: Sequence[KVRun] = ()
    publish_at: Sequence[int] = ()
    kv_dtype: str | None = None
    deadline_s: float | None = None
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Follow:
    """→ Landed (another request's answer), or Lease: this request leads now. Raises the leader's failure. The driver
    passes the text on as it comes."""

    seat: Seat


@dataclass(frozen=True, slots=True)
class AskFences:
    """→ whether, as far as the store knows, any process has invalidated something of the tenant's since then."""

    tenant: str
    since_s: float


@dataclass(frozen=True, slots=True)
class ClaimQuestion:
    """→ Claim (this process answers it), TAKEN (another one does), or None: nobody waits for anybody. Raises
    StoreError."""

    partition: Partition
    exact: str


@dataclass(frozen=True, slots=True)
class Pause:
    """→ None, after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class PublishEntry:
    """→ whether it was kept: not if it was invalidated while its answer was made, nor, with `keep_newer`, where there
    is one that is as new. Raises StoreError."""

    entry: Entry
    max_bytes: int | None
    keep_newer: bool = False


@dataclass(frozen=True, slots=True)
class Touch:
    """→ None. Raises StoreError."""

    partition: Partition
    entry_id: str


@dataclass(frozen=True, slots=True)
class WriteStats:
    """→ None. `write` writes the statistics that are due."""

    write: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Prolong:
    """→ None: a use moves the entry's end, where its policy says so. Raises StoreError."""

    entry: Entry
    sliding_s: float


@dataclass(frozen=True, slots=True)
class Revalidate:
    """→ None: a new answer to a request that is being served an old one is made in the background. Never waits.

    `by`: the engine that the request is for. At most one is under way for a `key`.
    """

    request: Request
    by: Engine
    key: Hashable


Effect = (
    FindExact
    | Embed
    | EmbedFormer
    | Search
    | Verify
    | Consult
    | NoteServed
    | NoteMissed
    | Prepare
    | Generate
    | Follow
    | AskFences
    | ClaimQuestion
    | Pause
    | PublishEntry
    | Touch
    | WriteStats
    | Prolong
    | Revalidate
)


class EngineFailed(Exception):
    """Thrown into the pipeline when an engine raised `cause`. `emitted`: text had already been passed on."""

    def __init__(self, cause: Exception, emitted: bool) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.emitted = emitted
