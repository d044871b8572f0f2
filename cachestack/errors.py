"""The errors a caller can meet.

::

    CacheStackError
    ├── UsageError             a call or a command was given something it cannot take
    │   ├── RequestError       an empty prompt, an impossible sampling value, a bad message
    │   ├── LabelError         empty, duplicate or untokenisable labels
    │   └── InputFileError     a file is missing, empty, malformed, or lacks the column
    ├── ConfigError            a policy or configuration file is wrong: names file, key, allowed values
    │   ├── PolicyError
    │   └── UnknownTenant      the tenant has no policy and the setting is to refuse
    ├── ModelError
    │   ├── ModelNotFound      not present and not reachable: says how to get it
    │   └── ModelCorrupt       a file does not have the expected SHA-256
    ├── EncoderError           an embedding could not be made, or was not finite
    │   └── EncoderTimeout     it was not made in the time that the policy gives
    ├── EngineError            the engine failed while it worked on a request
    │   ├── ContextTooLong     the prompt does not fit the model's context
    │   ├── UpstreamError      a remote engine answered with an error: its status and body
    │   ├── EngineTimeout      a remote engine did not answer in time, or could not be reached
    │   └── CircuitOpen        a remote engine failed too often and is left alone for a while
    ├── NotCached              the request forbids calling an engine, and nothing cached serves it
    ├── AccessDenied           credentials are missing, unknown or revoked
    ├── LimitExceeded          a rate or spend limit of the policy: says when to come again
    ├── StoreError             the state folder cannot be used
    │   └── EntryTooLarge      an entry alone exceeds its tenant's byte budget
    └── MissingExtra           an optional dependency is not installed: names the extra
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CacheStackError(Exception):
    """Base of all errors raised by CacheStack."""


class UsageError(CacheStackError, ValueError):
    """The caller gave something that cannot be used."""


class RequestError(UsageError):
    """A request is not valid."""


class LabelError(UsageError):
    """A set of labels cannot be scored."""


class InputFileError(UsageError):
    """An input file cannot be read as asked."""


class ConfigError(CacheStackError, ValueError):
    """A configuration is wrong."""


class PolicyError(ConfigError):
    """A policy file is wrong."""


class UnknownTenant(ConfigError):
    """The tenant has no policy, and the policy file refuses unknown tenants."""


class ModelError(CacheStackError):
    """A model cannot be used."""


class ModelNotFound(ModelError):
    """A model is neither on disk nor reachable."""


class ModelCorrupt(ModelError):
    """A model file is not the one that was expected."""


class EngineError(CacheStackError):
    """The engine failed while it worked on a request."""


class ContextTooLong(EngineError):
    """The prompt and the answer do not fit into the model's context."""


class UpstreamError(EngineError):
    """A remote engine answered with an error.

    `status` is its HTTP status, `body` what it said (None where that was no JSON), `retry_after_s` how long it asks to
    be left alone.
    """

    def __init__(
        self, message: str, *, status: int, body: Mapping[str, Any] | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s


class EngineTimeout(EngineError):
    """A remote engine did not answer in time, or could not be reached."""


class CircuitOpen(EngineError):
    """A remote engine failed too often in a row and is left alone for another `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotCached(CacheStackError):
    """The request forbids calling an engine, and nothing cached serves it."""


class AccessDenied(CacheStackError):
    """Credentials are missing, unknown or revoked. `status`: 401 where there are none that hold, 403 otherwise."""

    def __init__(self, message: str, *, status: int = 401) -> None:
        super().__init__(message)
        self.status = status


class LimitExceeded(CacheStackError):
    """A limit of the tenant's policy is reached; `retry_after_s` says when to come again, `limit` which key it is."""

    def __init__(self, message: str, *, retry_after_s: float, limit: str = "") -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.limit = limit


class StoreError(CacheStackError):
    """The state folder cannot be used."""


class EntryTooLarge(StoreError):
    """An entry would not fit its tenant's byte budget even if it were the only one."""


class MissingExtra(CacheStackError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str | None = None) -> None:
        wanted = package if extra is None else f"'cachestack[{extra}]'"
        super().__init__(f"{package} is not installed; install it with: pip install {wanted}")
        self.package = package
        self.extra = extra


class EncoderError(CacheStackError):
    """An embedding could not be made, or its values are not finite."""


class EncoderTimeout(EncoderError):
    """An embedding was not made in time."""
