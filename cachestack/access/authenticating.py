"""From a request's headers to who asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cachestack.access.api_key import PREFIX
from cachestack.access.jwt_tokens import TokenReader
from cachestack.access.key_store import KeyStore
from cachestack.access.principal import Kind, Principal, epoch_of
from cachestack.errors import AccessDenied

MAX_CREDENTIAL = 16 * 1024
_NONE_GIVEN = "no credentials: send an API key as `Authorization: Bearer csk_...` or as `x-api-key: csk_...`"
_NOT_VALID = (
    "the API key is not valid: it is unknown, revoked or expired; `cachestack keys list` shows those that are, "
    "`cachestack keys create` makes one"
)
_TWO = "the request carries different credentials (Authorization, x-api-key); send one"


class Authenticator(Protocol):
    """Tells who asks from the headers alone. Safe under threads."""

    @property
    def is_open(self) -> bool:
        """Whether it takes requests without credentials; then the gateway must not listen beyond loopback."""
        ...

    def authenticate(self, headers: Mapping[str, str], kind: Kind = "client") -> Principal:
        """Who asks. `kind`: what the endpoint is for.

        Raises AccessDenied: 401 where there are no credentials that hold, 403 where they are of the other kind; and
        StoreError where they cannot be checked now. The message says what to do, and nothing of which keys exist.
        """
        ...


class OpenAuthenticator:
    """For loopback: no credentials, one tenant. What is sent as credentials is not looked at.

    `is_admin_open`: whether the admin endpoints, too, need no key.
    """

    is_open = True

    def __init__(self, tenant: str = "default", *, is_admin_open: bool = False) -> None:
        self._client, self._admin = Principal(tenant), Principal(tenant, kind="admin")
        self._is_admin_open = is_admin_open

    def authenticate(self, headers: Mapping[str, str], kind: Kind = "client") -> Principal:
        if kind == "client":
            return self._client
        if not self._is_admin_open:
            raise AccessDenied("this needs an admin key; make one with `cachestack keys create --admin`")
        return self._admin


class CredentialsAuthenticator:
    """API keys, and tokens where there is a reader for them. Tokens are never an admin's.

    `open_until_keys` takes everybody as its clients until the first key is made, and never again after that.
    """

    def __init__(
        self, keys: KeyStore, tokens: TokenReader | None = None, *, open_until_keys: OpenAuthenticator | None = None
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._open = open_until_keys if tokens is None else None

    @property
    def is_open(self) -> bool:
        if self._open is not None and self._keys.exists():
            self._open = None
        return self._open is not None

    def authenticate(self, headers: Mapping[str, str], kind: Kind = "client") -> Principal:
        if self.is_open and self._open is not None:
            return self._open.authenticate(headers, kind)
        credential = read_credential(headers)
        if self._tokens is not None and not credential.startswith(f"{PREFIX}_"):
            principal = self._of_token(credential, self._tokens)
        else:
            principal = self._of_key(credential)
        if principal.kind != kind:
            raise AccessDenied(_OTHER_KIND[kind], status=403)
        return principal

    def _of_key(self, credential: str) -> Principal:
        principal = self._keys.principal_of(credential)
        if principal is None:
            raise AccessDenied(_NOT_VALID)
        return principal

    def _of_token(self, credential: str, tokens: TokenReader) -> Principal:
        claims = tokens.read(credential)
        raised = self._keys.epoch(claims.tenant, claims.user, claims.role)
        return Principal(claims.tenant, claims.user, claims.role, epoch_of(raised, claims.epoch))


_OTHER_KIND: Mapping[Kind, str] = {
    "admin": "this endpoint needs an admin key; make one with `cachestack keys create --admin`",
    "client": "an admin key asks no questions; use a client's key, `cachestack keys create --tenant NAME`",
}


def read_credential(headers: Mapping[str, str]) -> str:
    """The one credential in the headers. Raises AccessDenied where there is none, or more than one."""
    found: set[str] = set()
    for name, value in headers.items():
        match name.lower():
            case "authorization":
                scheme, _, rest = value.strip().partition(" ")
                if scheme.lower() != "bearer":
                    raise AccessDenied("Authorization must be `Bearer` and a key; other schemes are not known here")
                given = rest.strip()
            case "x-api-key":
                given = value.strip()
            case _:
                continue
        found.add(given)
    if len(found) > 1:
        raise AccessDenied(_TWO)
    credential = found.pop() if found else ""
    if not credential:
        raise AccessDenied(_NONE_GIVEN)
    if len(credential) > MAX_CREDENTIAL or not credential.isascii() or " " in credential:
        raise AccessDenied(_NOT_VALID)
    return credential
