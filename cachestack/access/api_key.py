"""What an API key is: `csk_ID_SECRET`, shown once; kept is a digest that binds the secret to what it opens."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass
from functools import cached_property

from cachestack.access.principal import Kind
from cachestack.keys import canonical_json

PREFIX = "csk"
_LETTERS = string.ascii_letters + string.digits
_ID_LENGTH, _SECRET_LENGTH = 12, 43  # 43 letters of 62 are 256 bits
_KEY = re.compile(rf"{PREFIX}_([A-Za-z0-9]{{{_ID_LENGTH}}})_([A-Za-z0-9]{{{_SECRET_LENGTH}}})", re.ASCII)
_NAMED = re.compile(rf"(?:{PREFIX}_)?([A-Za-z0-9]{{{_ID_LENGTH}}})(?:_[A-Za-z0-9]*)?", re.ASCII)
_NO_DIGEST = bytes(32)


@dataclass(frozen=True)
class KeyRecord:
    """One key as it is kept. Times in seconds since the epoch; `last_used_s` is right to the hour.

    `digest` is SHA-256 over the secret and over whom it stands for. The secret has 256 random bits, so nobody can try
    them all; a slow hash, made for what people can remember, would only slow down requests. A record whose tenant or
    kind was changed without the secret does not match it any more.
    """

    key_id: str
    tenant: str
    user: str | None
    role: str | None
    kind: Kind
    name: str
    digest: bytes
    created_s: float
    expires_s: float | None = None
    revoked_s: float | None = None
    last_used_s: float | None = None

    @cached_property
    def bound_to(self) -> bytes:
        return canonical_json([self.key_id, self.tenant, self.user, self.role, self.kind, self.expires_s])

    def is_live(self, now_s: float) -> bool:
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)

    def state(self, now_s: float) -> str:
        if self.revoked_s is not None:
            return "revoked"
        return "active" if self.is_live(now_s) else "expired"


def new_id() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(_ID_LENGTH))


def new_secret() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(_SECRET_LENGTH))


def write_key(key_id: str, secret: str) -> str:
    return f"{PREFIX}_{key_id}_{secret}"


def read_key(token: str) -> tuple[str, str] | None:
    """Id and secret; None for what is no key."""
    found = _KEY.fullmatch(token)
    return (found[1], found[2]) if found else None


def read_id(text: str) -> str | None:
    """The id in an id, in `csk_ID`, or in a whole key that somebody found."""
    found = _NAMED.fullmatch(text.strip())
    return found[1] if found else None


def digest_of(bound_to: bytes, secret: str) -> bytes:
    parts = (b"cachestack/api-key/1", len(bound_to).to_bytes(8, "big"), bound_to, secret.encode())
    return hashlib.sha256(b"".join(parts)).digest()


def matches(record: KeyRecord | None, secret: str) -> bool:
    """Whether the secret is the record's; as long for no record as for a wrong secret."""
    bound_to, kept = (record.bound_to, record.digest) if record is not None else (bytes(64), _NO_DIGEST)
    return hmac.compare_digest(digest_of(bound_to, secret), kept) and record is not None
