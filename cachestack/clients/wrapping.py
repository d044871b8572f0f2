"""From a client to the same client with the cache below it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cachestack.clients.calling import Principal, Setting, checked_options
from cachestack.clients.dialect import Dialect
from cachestack.decisions import Response
from cachestack.errors import UsageError

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

C = TypeVar("C")


def wrap_client(
    stack: CacheStack,
    client: C,
    *,
    tenant: Principal,
    user: Principal,
    role: Principal,
    epoch: int,
    options: Mapping[str, Any],
    ignored_headers: Collection[str],
    on_response: Callable[[Response], None] | None,
) -> C:
    """A copy of the client, of the same class. Raises UsageError for what is no client that can be wrapped."""
    from cachestack.clients.sending import async_client, http_module, sync_client

    dialects = _dialects_of(client)
    inner = getattr(client, "_client", None)
    found = http_module(inner)
    if not dialects or found is None:
        kind = f"{type(client).__module__}.{type(client).__qualname__}"
        raise UsageError(f"wrap_client takes a client of the packages openai and anthropic, not {kind}")
    if hasattr(inner, "_cachestack"):
        raise UsageError("this client is wrapped already")
    setting = Setting(
        stack=stack,
        dialects=dialects,
        tenant=tenant,
        user=user,
        role=role,
        epoch=epoch,
        options=checked_options(options),
        headers_ignored=frozenset(name.lower() for name in ignored_headers),
        on_response=on_response,
    )
    module, is_async = found
    made = (async_client if is_async else sync_client)(module)(inner, setting)
    copy: Any = client
    wrapped: C = copy.copy(http_client=made)
    return wrapped


def _dialects_of(client: object) -> tuple[Dialect, ...]:
    packages = {base.__module__.partition(".")[0] for base in type(client).__mro__}
    if "openai" in packages:
        from cachestack.clients.openai_chat import OPENAI_CHAT
        from cachestack.clients.openai_responses import OPENAI_RESPONSES

        return OPENAI_CHAT, OPENAI_RESPONSES
    if "anthropic" in packages:
        from cachestack.clients.anthropic_messages import ANTHROPIC_MESSAGES

        return (ANTHROPIC_MESSAGES,)
    return ()
