"""Keys: pure hashing over canonical bytes.

Nothing here uses Python's `hash()`: keys are the same in every process and cannot be forged by choosing inputs.
Every field is length-prefixed or JSON-encoded, so no two different inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache
from itertools import dropwhile
from typing import Any

from cachestack.requests import Request, Sampling

KEY_VERSION = "2"
INSTRUCTING = ("system", "developer")
_MAX_REMEMBERED_CHARS = 4096
"""Of longer texts no digest is remembered: callers choose how long they are, and what is remembered holds them."""
_TUPLE, _ENUM = "\0tuple", "\0enum"  # what JSON has no word for; a function may answer otherwise to a list


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; different values never give the same bytes.

    Raises TypeError or ValueError for what JSON cannot say without loss: keys that are not text, and objects whose
    type would be lost (subclasses, dataclasses). Tuples are told from lists, members of an enumeration from values.
    """
    try:
        text = json.dumps(_exact(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise ValueError("a value is nested too deeply") from None
    return text.encode("utf-8", "surrogatepass")


def _exact(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return value
    if kind is list:
        return [_exact(item) for item in value]
    if kind is tuple:
        return {_TUPLE: [_exact(item) for item in value]}
    if isinstance(value, Enum):
        return {_ENUM: [kind.__module__, kind.__qualname__, value.name]}
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str or key in (_TUPLE, _ENUM):
                raise TypeError(f"a key must be text, not {key!r}")
        return {key: _exact(item) for key, item in value.items()}
    raise TypeError(f"a value of type {kind.__name__} cannot be compared")


def digest(*parts: bytes) -> str:
    """SHA-256 (hex) over the parts, each with its length in front."""
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "big"))
        h.update(part)
    return h.hexdigest()


def normalise(text: str) -> str:
    """The form in which texts are compared exactly: Unicode NFC, one kind of line end, no outer white space.

    Inner white space and letter case stay: in code and passwords they carry meaning.
    """
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


@dataclass(frozen=True, slots=True)
class Partition:
    """The wall around a set of entries. Two partitions never see each other's entries.

    `user` and `role` are None where the policy does not separate by them. `epoch` is the authorisation epoch of who
    asks: raised when rights were taken away, so that what was kept under the former ones is never met again. `area` is
    empty for all that may be served; no request names another.
    """

    tenant: str
    user: str | None = None
    role: str | None = None
    epoch: int = 0
    area: str = ""

    @property
    def digest(self) -> str:
        return _partition_digest(self)


@lru_cache(maxsize=4096)
def _partition_digest(partition: Partition) -> str:
    names: list[str | int | None] = [partition.tenant, partition.user, partition.role]
    if partition.epoch or partition.area:
        names.append(partition.epoch)
    if partition.area:
        names.append(partition.area)
    return digest(b"partition", KEY_VERSION.encode(), canonical_json(names))


@dataclass(frozen=True)
class Contract:
    """What must be equal for a cached answer to be reusable.

    `parameters` holds sampling, tools, response format, n, stop and every unknown parameter; a parameter that was
    omitted is None and differs from any value. `system` is the digest of the system messages with their roles,
    `history` that of all messages before the last, from the first on that is not one; a system message among them
    leaves its place there. The text of a last message that is the user's is never in it.

    Exact keys take all of it (`digest`). By meaning, questions are matched within a `group`: all but the history, which
    is compared by what the question leans on.
    """

    model: str
    system: str
    history: str
    version: str | None
    last_role: str
    parameters: str
    part_versions: tuple[str | None, ...] = ()

    @cached_property
    def digest(self) -> str:
        texts = (self.model, self.version or "", self.parameters, *filter(None, self.part_versions))
        return (_remembered_digest if sum(map(len, texts)) <= _MAX_REMEMBERED_CHARS else _contract_digest)(self)

    @property
    def group(self) -> str:
        """The digest of all but the history; that of a request without one is its `digest`."""
        return _contract_digest(self if self.is_first else replace(self, history=_digest_of_none(b"history")))

    @property
    def is_first(self) -> bool:
        """Whether nothing was said before the last message."""
        return self.history == _digest_of_none(b"history")


def _contract_digest(contract: Contract) -> str:
    fields = asdict(contract)
    if not contract.part_versions:  # entries from before there were parts keep their keys
        del fields["part_versions"]
    return digest(b"contract", KEY_VERSION.encode(), canonical_json(fields))


_remembered_digest = lru_cache(maxsize=256)(_contract_digest)


def contract_of(request: Request, model: str) -> Contract:
    """The contract of a request to `model`. Raises TypeError or ValueError if a parameter is not JSON."""
    system = [[m.role, normalise(m.content)] for m in request.messages if m.role in INSTRUCTING]
    earlier = dropwhile(lambda m: m.role in INSTRUCTING, request.messages[:-1])
    history = [[m.role, "" if m.role in INSTRUCTING else normalise(m.content)] for m in earlier]
    return Contract(
        model=model,
        system=digest(b"system", canonical_json(system)) if system else _digest_of_none(b"system"),
        history=digest(b"history", canonical_json(history)) if history else _digest_of_none(b"history"),
        version=request.version,
        last_role=request.messages[-1].role,
        parameters=_parameters(request),
        part_versions=request.part_versions,
    )


@lru_cache(maxsize=8)
def _digest_of_none(kind: bytes) -> str:
    return digest(kind, canonical_json([]))


def _parameters(request: Request) -> str:
    sampling = request.sampling
    if request.tools or request.extra or request.response_format is not None:
        return _parameters_text(sampling, list(request.tools), request.response_format, dict(request.extra))
    written = repr(sampling)
    if len(written) > _MAX_REMEMBERED_CHARS:  # stop strings
        return _parameters_text(sampling, [], None, {})
    return _sampling_alone(written, sampling)


@lru_cache(maxsize=256)
def _sampling_alone(written: str, sampling: Sampling) -> str:
    """`written` tells apart what is equal in Python and not in JSON: 0, 0.0 and -0.0."""
    return _parameters_text(sampling, [], None, {})


def _parameters_text(sampling: Sampling, tools: list[Any], response_format: Any, extra: dict[str, Any]) -> str:
    parameters = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop": list(sampling.stop),
        "max_new_tokens": sampling.max_new_tokens,
        "n": sampling.n,
        "tools": tools,
        "response_format": response_format,
        "extra": extra,
    }
    return canonical_json(parameters).decode("utf-8", "surrogatepass")


def exact_key(partition: Partition, contract: Contract, text: str) -> str:
    """The digest of one exact question. A beginning of the answer (`last_role` assistant) counts to the last space."""
    question = text if contract.last_role == "assistant" else normalise(text)
    return _exact_digest(partition, contract.digest, question)


def moved_exact_key(exact: str, contract: str, text: str, before: Partition, after: Partition) -> str | None:
    """The exact key in another partition of what has the key `exact` in `before`; `contract` is the contract's digest.

    None where `exact` is not the key of this text under this contract: then it is another version's, or nobody's.
    """
    for question in (normalise(text), text):
        if _exact_digest(before, contract, question) == exact:
            return _exact_digest(after, contract, question)
    return None


def _exact_digest(partition: Partition, contract: str, question: str) -> str:
    return digest(b"exact", partition.digest.encode(), contract.encode(), question.encode("utf-8", "surrogatepass"))


def tenant_salt(secret: bytes, tenant: str) -> bytes:
    """A tenant's salt for KV blocks (HMAC-SHA-256): equal prompts of two tenants never share a block hash."""
    return hmac.new(secret, b"cachestack/kv/" + tenant.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


def block_hashes(ids: Sequence[int], block_size: int, fingerprint: str, salt: bytes) -> Iterator[bytes]:
    """Chained SHA-256 hashes of the full blocks of `ids`, first block first.

    `hash_i = SHA-256(hash_{i-1}, ids of block i)`, the chain starting from the model's fingerprint and the salt.
    """
    parent = bytes.fromhex(digest(b"block", fingerprint.encode(), salt, str(block_size).encode()))
    for start in range(0, len(ids) - block_size + 1, block_size):
        block = b"".join(i.to_bytes(4, "big") for i in ids[start : start + block_size])
        parent = hashlib.sha256(parent + block).digest()
        yield parent
