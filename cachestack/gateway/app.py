"""The routes, put together: an ASGI application over one stack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cachestack.access import Authenticator
from cachestack.bodies.offered import Models
from cachestack.gateway.admin import Admin
from cachestack.gateway.admission import Admission
from cachestack.gateway.answering import Answering
from cachestack.gateway.dialects.anthropic_messages import AnthropicMessages
from cachestack.gateway.dialects.openai_chat import OpenAIChat
from cachestack.gateway.dialects.openai_completions import OpenAICompletions
from cachestack.gateway.dialects.openai_responses import OpenAIResponses
from cachestack.gateway.embeddings import Embeddings
from cachestack.gateway.faults import Fault, Kind
from cachestack.gateway.jsonbody import JsonBody
from cachestack.gateway.labels import Labels
from cachestack.gateway.listing import Listing, help_text
from cachestack.gateway.local_only import LocalOnly
from cachestack.gateway.openapi import openapi_document
from cachestack.gateway.parsed import ParsedCalls
from cachestack.gateway.readiness import Readiness
from cachestack.gateway.reports import Reports
from cachestack.gateway.requesting import Endpoint, Exchange, Within, new_trace_id, no_context
from cachestack.gateway.shapes import MESSAGES, shape_for
from cachestack.gateway.stack_port import StackPort
from cachestack.gateway.wire import dump
from cachestack.stack import CacheStack


def create_app(
    stack: CacheStack,
    models: Models,
    authenticator: Authenticator,
    readiness: Readiness,
    *,
    max_body_bytes: int = 32 * 1024 * 1024,
    allowed_hosts: Sequence[str] = (),
    within: Within = no_context,
    routes: Sequence[BaseRoute] = (),
    parsed: ParsedCalls | None = None,
    in_turns: bool = False,
) -> LocalOnly:
    """`allowed_hosts`: see LocalOnly. `within`: what is done around each answer. `routes`: further ones. `parsed`:
    where calls are kept. `in_turns`: see StackPort."""
    port = StackPort(stack, in_turns=in_turns)
    parsed = ParsedCalls() if parsed is None else parsed
    admission = Admission(stack)
    stack.revalidations.admit = admission.refresh
    body = JsonBody(authenticator, admission, max_body_bytes)
    document = openapi_document()

    def answering(path: str, dialect: OpenAIChat | OpenAICompletions | OpenAIResponses | AnthropicMessages) -> Route:
        shape = shape_for(path)
        handle = Answering(
            port, dialect, shape, authenticator, admission, parsed, max_body_bytes=max_body_bytes, within=within
        )
        return _post(path, handle)

    async def openapi(exchange: Exchange) -> None:
        await exchange.answer(document)

    async def root(exchange: Exchange) -> None:
        await exchange.answer({"message": help_text(models)})

    async def alive(exchange: Exchange) -> None:
        await exchange.answer({"status": "alive"})

    async def ready(exchange: Exchange) -> None:
        await exchange.answer({"status": readiness.status}, 200 if readiness.is_ready else 503)

    listing = Listing(models, authenticator)
    admin = Admin(port, authenticator, max_body_bytes)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await stack.revalidations.cancel_here()
            port.close()

    answers = [
        answering("/v1/chat/completions", OpenAIChat(models)),
        answering("/v1/completions", OpenAICompletions(models)),
        answering("/v1/responses", OpenAIResponses(models)),
        answering(MESSAGES, AnthropicMessages(models)),
    ]
    app = Starlette(
        routes=[
            *answers,
            _post("/v1/embeddings", Embeddings(port, models, body)),
            _post("/v1/classify", Labels(port, models, body, many=True)),
            _post("/v1/score", Labels(port, models, body, many=False)),
            _post("/v1/report", Reports(port, body)),
            _get("/v1/models", listing.all),
            _get("/v1/models/{model:path}", listing.one),
            _get("/healthz", alive),
            _get("/readyz", ready),
            _get("/metrics", admin.metrics),
            _get("/admin/stats", admin.stats),
            _post("/admin/invalidate", admin.invalidate),
            _route("DELETE", "/admin/entries/{entry}", admin.remove),
            _post("/admin/report", admin.report),
            _get("/openapi.json", openapi),
            _get("/", root),
            *routes,
        ],
        exception_handlers={HTTPException: _outside_a_route},
        lifespan=lifespan,
    )
    return LocalOnly(ShortWay({route.path: route.endpoint for route in answers}, app), authenticator, allowed_hosts)


class ShortWay:
    """The endpoints that answer, reached by their path alone; all else goes through the routes, `app`."""

    def __init__(self, endpoints: Mapping[str, ASGIApp], app: Starlette) -> None:
        self._endpoints = endpoints
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and not scope["root_path"]:
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is not None:
                await endpoint(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _post(path: str, handle: Callable[[Exchange], Awaitable[None]]) -> Route:
    return _route("POST", path, handle)


def _get(path: str, handle: Callable[[Exchange], Awaitable[None]]) -> Route:
    return _route("GET", path, handle)


def _route(method: str, path: str, handle: Callable[[Exchange], Awaitable[None]]) -> Route:
    return Route(path, Endpoint(handle, shape_for(path)), methods=[method])


async def _outside_a_route(request: HttpRequest, error: Exception) -> HttpResponse:
    """Unknown paths and wrong methods."""
    assert isinstance(error, HTTPException), "the handler of HTTPException"
    status = error.status_code
    kind: Kind = "method" if status == 405 else "not_found" if status == 404 else "invalid"
    message = {
        404: f"there is nothing at {request.url.path}; GET /openapi.json says what there is",
        405: f"{request.method} is not for {request.url.path}",
    }.get(status, error.detail)
    trace_id = new_trace_id()
    code = {404: "unknown_path", 405: "wrong_method"}.get(status)
    body = dump(shape_for(request.url.path)(Fault(status, kind, message, code), trace_id))
    headers = {"x-cachestack-trace": trace_id, **(error.headers or {})}
    return HttpResponse(body, status, headers, media_type="application/json")
