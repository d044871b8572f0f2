"""One call of a wrapped client: from its HTTP request to the Request that the stack is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cachestack.clients.dialect import Asking, Dialect, Written
from cachestack.decisions import Response
from cachestack.errors import RequestError
from cachestack.requests import Request

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

OPTIONS = "cachestack"
_PER_CALL = ("tags", "ttl_s", "version", "store", "lookup", "only_if_cached", "max_age_s")
Principal = str | Callable[[Mapping[str, Any]], str | None] | None

# What a client or a proxy adds to each call, who calls, and what follows a call through systems: no part of the
# question. All other headers are.
_HEADERS_IGNORED = frozenset(
    {
        "accept", "accept-encoding", "accept-language", "api-key", "authorization", "b3", "baggage", "connection",
        "content-length", "content-type", "cookie", "elastic-apm-traceparent", "host", "idempotency-key",
        "sentry-trace", "traceparent", "tracestate", "user-agent", "x-amzn-trace-id", "x-api-key",
        "x-client-request-id", "x-cloud-trace-context", "x-request-id",
    }
)  # fmt: skip
_PREFIXES_IGNORED = ("x-stainless-", "x-b3-", "x-datadog-")


@dataclass(frozen=True, slots=True)
class Setting:
    """What `wrap_client` was told. `tenant`, `user`, `role`: a name, or a function of the call's body."""

    stack: CacheStack
    dialects: tuple[Dialect, ...]
    tenant: Principal
    user: Principal = None
    role: Principal = None
    epoch: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    headers_ignored: frozenset[str] = frozenset()
    on_response: Callable[[Response], None] | None = None

    def dialect(self, method: str, path: str) -> Dialect | None:
        """Whose call it is; None: none that is cached."""
        if method != "POST":
            return None
        return next((dialect for dialect in self.dialects if path.endswith(dialect.path)), None)


@dataclass(frozen=True, slots=True)
class Call:
    """`body`: what goes to the provider. `is_changed`: not what came, as options were taken out of it."""

    dialect: Dialect
    asking: Asking
    request: Request
    body: dict[str, Any]
    is_changed: bool

    def about(self, answer_id: str) -> Written:
        asking = self.asking
        return Written(answer_id, asking.model, int(time.time()), asking.include_usage, self.body)


@dataclass(frozen=True, slots=True)
class Passed:
    """Only the provider can deal with it: no valid call of its dialect, none with a text, or one that depends on what
    the provider keeps. `body`: what to send where it is not what came."""

    body: dict[str, Any] | None = None


def read_call(
    setting: Setting, dialect: Dialect, url: str, headers: Mapping[str, str], content: bytes
) -> Call | Passed:
    """Raises RequestError for options that cannot be read, and for a tenant that is none."""
    try:
        came = json.loads(content)
    except (ValueError, RecursionError):
        return Passed()
    if not isinstance(came, dict):
        return Passed()
    options = {**setting.options, **_options(came)}
    body = {name: value for name, value in came.items() if name != OPTIONS}
    is_changed = OPTIONS in came
    tenant = _named(setting.tenant, body, "tenant")
    if tenant is None:
        raise RequestError("tenant gave no name for this call")
    try:
        asking = dialect.ask(body)
        request = Request(
            messages=asking.messages,
            model=asking.model,
            sampling=asking.sampling,
            tools=asking.tools,
            response_format=asking.response_format,
            extra={
                "address": url,
                "dialect": dialect.name,
                "headers": _headers_that_count(headers, setting.headers_ignored),
                "others": asking.others,
                "parameters": asking.rest,
            },
            dialect=dialect.name,
            body=body,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return Passed(body if is_changed else None)
    if asking.is_stateful:
        return Passed(body if is_changed else None)
    user, role = _named(setting.user, body, "user"), _named(setting.role, body, "role")
    request = replace(request, tenant=tenant, user=user, role=role, epoch=setting.epoch, **options)
    return Call(dialect, asking, request, body, is_changed)


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    given = body.get(OPTIONS, {})
    if not isinstance(given, dict) or not set(given) <= set(_PER_CALL):
        names = ", ".join(_PER_CALL)
        raise RequestError(f"{OPTIONS} in extra_body takes {names}, not {given!r}")
    return checked_options(given)


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a call or of `wrap_client`, as a Request takes them. Raises RequestError."""
    options = dict(given)
    tags = options.get("tags", ())
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise RequestError(f"tags must be a list of names, not {tags!r}")
    if "tags" in options:
        options["tags"] = tuple(tags)
    for name in ("store", "lookup", "only_if_cached"):
        if not isinstance(options.get(name, True), bool):
            raise RequestError(f"{name} is true or false, not {options[name]!r}")
    return options


def _named(principal: Principal, body: Mapping[str, Any], what: str) -> str | None:
    name = principal(body) if callable(principal) else principal
    if name is not None and not isinstance(name, str):
        raise RequestError(f"{what} must be a name, not {name!r}")
    return name


def _headers_that_count(headers: Mapping[str, str], ignored: Collection[str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted((name.lower(), value) for name, value in headers.items())
        if name not in _HEADERS_IGNORED and name not in ignored and not name.startswith(_PREFIXES_IGNORED)
    }
