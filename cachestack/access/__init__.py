"""Who may ask, and how much: API keys, tokens, limits."""

from cachestack.access.api_key import KeyRecord
from cachestack.access.authenticating import Authenticator, CredentialsAuthenticator, OpenAuthenticator
from cachestack.access.config import AccessSettings, ClaimNames, JwtSettings
from cachestack.access.jwt_tokens import TokenReader
from cachestack.access.key_store import KeyStore
from cachestack.access.limiter import Lease, Limiter
from cachestack.access.opening import open_access
from cachestack.access.principal import Kind, Principal

__all__ = [
    "AccessSettings",
    "Authenticator",
    "ClaimNames",
    "CredentialsAuthenticator",
    "JwtSettings",
    "KeyRecord",
    "KeyStore",
    "Kind",
    "Lease",
    "Limiter",
    "OpenAuthenticator",
    "Principal",
    "TokenReader",
    "open_access",
]
