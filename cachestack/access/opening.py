"""From settings to an authenticator."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cachestack.access.authenticating import CredentialsAuthenticator, OpenAuthenticator
from cachestack.access.config import AccessSettings
from cachestack.access.jwt_tokens import TokenReader
from cachestack.access.key_store import KeyStore


def open_access(
    settings: AccessSettings,
    home: Path,
    *,
    tenant: str = "default",
    is_admin_open: bool = False,
    clock: Callable[[], float] = time.time,
    ticks: Callable[[], float] = time.monotonic,
) -> CredentialsAuthenticator:
    """What checks the credentials of requests.

    Where neither tokens are set up nor a key was ever made in `home`, it is open: everybody is a client of `tenant`,
    until the first key is made; with `is_admin_open` an admin as well. Ask `is_open` before listening beyond loopback.
    Raises ConfigError, MissingExtra, StoreError.
    """
    keys = KeyStore(home, clock=clock, ticks=ticks)
    tokens = None if settings.jwt is None else TokenReader(settings.jwt, clock=clock, ticks=ticks)
    keys.exists()  # a damaged file is found now, not at the first request
    return CredentialsAuthenticator(
        keys, tokens, open_until_keys=OpenAuthenticator(tenant, is_admin_open=is_admin_open)
    )
