"""Keys: pure hashing over canonical bytes.

Nothing here uses Python's `hash()`: keys are the same in every process and cannot be forged by choosing inputs.
Every field is length-prefixed or JSON-encoded, so no two different inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cachestack.requests import Request

KEY_VERSION = "1"


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces. Raises TypeError or ValueError for what JSON cannot say."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(
        "utf-8", "surrogatepass"
    )


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

    `user` and `role` are None where the policy does not separate by them.
    """

    tenant: str
    user: str | None = None
    role: str | None = None

    @property
    def digest(self) -> str:
        return digest(b"partition", KEY_VERSION.encode(), canonical_json([self.tenant, self.user, self.role]))


@dataclass(frozen=True, slots=True)
class Contract:
    """What must be equal for a cached answer to be reusable.

    `parameters` holds sampling, tools, response format, n, stop and every unknown parameter; a parameter that was
    omitted is None and differs from any value. `history` is the digest of all messages before the last that are
    not system messages. The last message's text is never in it.
    """

    model: str
    system: str
    history: str
    version: str | None
    last_role: str
    parameters: str

    @property
    def digest(self) -> str:
        return digest(b"contract", KEY_VERSION.encode(), canonical_json(asdict(self)))


def contract_of(request: Request, model: str) -> Contract:
    """The contract of a request to `model`. Raises TypeError or ValueError if a parameter is not JSON."""
    earlier = [[m.role, normalise(m.content)] for m in request.messages[:-1] if m.role not in ("system", "developer")]
    sampling = request.sampling
    parameters = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop": list(sampling.stop),
        "max_new_tokens": sampling.max_new_tokens,
        "n": sampling.n,
        "tools": list(request.tools),
        "response_format": request.response_format,
        "extra": dict(request.extra),
    }
    return Contract(
        model=model,
        system=digest(b"system", canonical_json([normalise(s) for s in request.system])),
        history=digest(b"history", canonical_json(earlier)),
        version=request.version,
        last_role=request.messages[-1].role,
        parameters=canonical_json(parameters).decode("utf-8", "surrogatepass"),
    )


def exact_key(partition: Partition, contract: Contract, text: str) -> str:
    """The digest of one exact question."""
    return digest(
        b"exact",
        partition.digest.encode(),
        contract.digest.encode(),
        normalise(text).encode("utf-8", "surrogatepass"),
    )


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
