"""JSON Web Tokens: from a signed token to who asks."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cachestack.access.config import JwtSettings
from cachestack.access.jwt_keys import KeySource, VerifyingKeys
from cachestack.access.principal import MAX_CLAIMED, MAX_NAME, is_plain
from cachestack.errors import AccessDenied, MissingExtra

MAX_REMEMBERED = 1024
REMEMBERED_S = 30.0
_OPTIONS: Any = {  # times are compared here: PyJWT takes them from the system, not from our clock
    "require": ["exp", "iss", "aud"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}
NOT_VALID = "the token is not valid: its signature, issuer, audience, times or algorithm are not what is expected here"


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """What a valid token says. `good_until_s`: seconds since the epoch."""

    tenant: str
    user: str | None
    role: str | None
    epoch: int
    good_until_s: float


class TokenReader:
    """Checks tokens. Safe under threads.

    A token that was found valid is not checked again for up to 30 seconds, as long as it has not expired and the keys
    are the same; it is remembered by its digest. `clock`: seconds since the epoch; `ticks` only moves forward.
    """

    def __init__(
        self,
        settings: JwtSettings,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            import jwt
        except ImportError:
            raise MissingExtra("PyJWT", "gateway") from None
        self._jwt = jwt
        self._settings = settings
        self._source = KeySource(settings, clock=ticks)
        self._clock = clock
        self._ticks = ticks
        self._lock = threading.Lock()
        self._remembered: OrderedDict[bytes, tuple[TokenClaims, float, int]] = OrderedDict()

    def read(self, token: str) -> TokenClaims:
        """Raises AccessDenied: 401 where the token is not valid, 403 where it is, but does not say who asks."""
        keys = self._source.current()
        name = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = self._remembered.get(name)
        if found is not None:
            claims, until_s, version = found
            if version == keys.version and self._ticks() < until_s and self._clock() < claims.good_until_s:
                return claims
        claims = self._claims_of(self._payload(token, keys))
        with self._lock:
            self._remembered[name] = (claims, self._ticks() + REMEMBERED_S, keys.version)
            self._remembered.move_to_end(name)
            while len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return claims

    def _payload(self, token: str, keys: VerifyingKeys) -> Mapping[str, Any]:
        jwt = self._jwt
        try:
            head = jwt.get_unverified_header(token)
            key = keys.choose(head.get("kid"), head.get("alg"))
            if key is None or "crit" in head or "b64" in head:
                raise AccessDenied(NOT_VALID)
            payload: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                options=_OPTIONS,
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError):
            raise AccessDenied(NOT_VALID) from None
        now_s, leeway_s = self._clock(), self._settings.leeway_s
        if now_s >= _seconds(payload, "exp") + leeway_s:
            raise AccessDenied("the token has expired; get a new one from its issuer")
        for name in ("nbf", "iat"):
            if name in payload and now_s < _seconds(payload, name) - leeway_s:
                raise AccessDenied(NOT_VALID)
        return payload

    def _claims_of(self, payload: Mapping[str, Any]) -> TokenClaims:
        names = self._settings.claims
        tenant = _name(payload, names.tenant, "tenant")
        if tenant is None:
            raise AccessDenied(f"the token names no tenant: it needs the claim {names.tenant!r}", status=403)
        return TokenClaims(
            tenant,
            _name(payload, names.user, "user"),
            _name(payload, names.role, "role"),
            _epoch(payload, names.epoch),
            _seconds(payload, "exp") + self._settings.leeway_s,
        )


def _seconds(payload: Mapping[str, Any], name: str) -> float:
    value = payload[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e15:
        raise AccessDenied(NOT_VALID)
    return float(value)


def _name(payload: Mapping[str, Any], claim: str | None, what: str) -> str | None:
    value = None if claim is None else payload.get(claim)
    if isinstance(value, list) and what == "role" and len(value) <= 1:
        value = value[0] if value else None
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME or not is_plain(value):
        raise AccessDenied(
            f"the token's claim {claim!r} must be one {what}'s name of 1 to {MAX_NAME} characters", status=403
        )
    return value


def _epoch(payload: Mapping[str, Any], claim: str | None) -> int:
    value = None if claim is None else payload.get(claim)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_CLAIMED:
        says = f"the token's claim {claim!r} must be a whole number from 0 to {MAX_CLAIMED - 1}"
        raise AccessDenied(says, status=403)
    return value
