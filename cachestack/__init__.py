"""CacheStack: a semantic cache, a prefix KV cache and decoding for language models, under a policy per tenant.

The names below are loaded when they are first used: `import cachestack` itself loads nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachestack.aio import AsyncCacheStack
    from cachestack.comparing import Comparison
    from cachestack.decisions import Reason, Response, Trace
    from cachestack.errors import CacheStackError
    from cachestack.explaining import Explanation
    from cachestack.policy import Policy
    from cachestack.policy_set import PolicySet
    from cachestack.prompts import Part, StructuredPrompt
    from cachestack.requests import Chunk, Message, Request, Sampling, Usage
    from cachestack.stack import CacheStack

__version__ = "0.1.0"

_HOME = {
    "AsyncCacheStack": "aio",
    "CacheStack": "stack",
    "CacheStackError": "errors",
    "Chunk": "requests",
    "Comparison": "comparing",
    "Explanation": "explaining",
    "Message": "requests",
    "Part": "prompts",
    "Policy": "policy",
    "PolicySet": "policy_set",
    "Reason": "decisions",
    "Request": "requests",
    "Response": "decisions",
    "Sampling": "requests",
    "StructuredPrompt": "prompts",
    "Trace": "decisions",
    "Usage": "requests",
}

__all__ = [
    "AsyncCacheStack",
    "CacheStack",
    "CacheStackError",
    "Chunk",
    "Comparison",
    "Explanation",
    "Message",
    "Part",
    "Policy",
    "PolicySet",
    "Reason",
    "Request",
    "Response",
    "Sampling",
    "StructuredPrompt",
    "Trace",
    "Usage",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cachestack' has no attribute {name!r}")
    return getattr(import_module(f"cachestack.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
