"""The beginning of the smaller endpoints: who asks, and a JSON object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from cachestack.access import Authenticator, Principal
from cachestack.gateway.admission import Admission
from cachestack.gateway.requesting import Exchange
from cachestack.gateway.wire import read_object


@dataclass(frozen=True, slots=True)
class JsonBody:
    authenticator: Authenticator
    admission: Admission
    max_bytes: int

    @asynccontextmanager
    async def read(self, exchange: Exchange) -> AsyncIterator[tuple[Principal, dict[str, Any]]]:
        """Within, the request counts as one under way.

        Raises AccessDenied before anything is read, RequestError, LimitExceeded, and Refused for a body that is too
        large.
        """
        headers = exchange.headers
        principal = self.authenticator.authenticate(headers)
        body = read_object(await exchange.body(self.max_bytes))
        if exchange.is_late:
            principal = self.authenticator.authenticate(headers)
        with self.admission.admit(principal):
            yield principal, body
