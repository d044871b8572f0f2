"""Who asks: what credentials say, and nothing else does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from cachestack.errors import UsageError
from cachestack.requests import Request

Kind = Literal["client", "admin"]
MAX_NAME = 256
MAX_CLAIMED = 2**44
"""A token's own epoch is below it: enough for a time in milliseconds."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `kind`: a client asks questions, an admin looks after the gateway; neither may do the other's work.

    `epoch` is the authorisation epoch: raised when rights were taken away, so that no earlier entry is met again.
    `key_id` names the API key, where there was one; it is no secret.
    """

    tenant: str
    user: str | None = None
    role: str | None = None
    epoch: int = 0
    kind: Kind = "client"
    key_id: str | None = None

    def bind(self, request: Request) -> Request:
        """The request as this principal's, whatever tenant, user, role or epoch it named before."""
        return replace(request, tenant=self.tenant, user=self.user, role=self.role, epoch=self.epoch)


def epoch_of(raised: int, claimed: int = 0) -> int:
    """A request's epoch, from the one that was raised here and the one that the token claims.

    No two pairs give the same one, whether keys or tokens are used; raising here is above all that tokens claim.
    """
    return raised * MAX_CLAIMED + claimed


def check_name(what: str, name: object) -> str:
    """Raises UsageError for what cannot name a tenant, a user or a role."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or not is_plain(name):
        raise UsageError(f"{what} must be a name of 1 to {MAX_NAME} characters without control characters")
    return name


def is_plain(name: str) -> bool:
    """Neither control characters nor half of a surrogate pair, which no file could hold."""
    return not any(c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in name)
