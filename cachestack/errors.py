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
    │   └── ContextTooLong     the prompt does not fit the model's context
    ├── StoreError             the state folder cannot be used
    │   └── EntryTooLarge      an entry alone exceeds its tenant's byte budget
    └── MissingExtra           an optional dependency is not installed: names the extra
"""

from __future__ import annotations


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


class StoreError(CacheStackError):
    """The state folder cannot be used."""


class EntryTooLarge(StoreError):
    """An entry would not fit its tenant's byte budget even if it were the only one."""


class MissingExtra(CacheStackError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; install it with: pip install 'cachestack[{extra}]'")
        self.package = package
        self.extra = extra


class EncoderError(CacheStackError):
    """An embedding could not be made, or its values are not finite."""


class EncoderTimeout(EncoderError):
    """An embedding was not made in time."""
