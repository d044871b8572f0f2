"""`cachestack explain`: what would become of a request, and why."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cachestack.access.principal import Principal
from cachestack.asking import build_request
from cachestack.bodies.anthropic_messages import read_message
from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models, Offered
from cachestack.bodies.openai_chat import read_chat
from cachestack.bodies.openai_completions import read_completion
from cachestack.bodies.openai_responses import read_response
from cachestack.bodies.wishes import NONE
from cachestack.cli.options import ModelOption, PoliciesOption
from cachestack.cli.output import JsonOption, print_json
from cachestack.errors import EngineError, InputFileError, RequestError
from cachestack.items import read_text
from cachestack.requests import Generation, Request

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

Endpoint = Literal["chat", "completions", "responses", "messages"]
Reader = Callable[[Models, dict[str, Any], Given], Call]
_ENDPOINTS: Mapping[Endpoint, Reader] = {
    "chat": read_chat,
    "completions": read_completion,
    "responses": read_response,
    "messages": read_message,
}
_ONLY_OWN = frozenset(
    (
        *("tenant", "role", "system", "max_new_tokens", "extra", "tags", "version", "ttl_s", "stable_messages"),
        *("lookup", "only_if_cached", "max_age_s"),
    )
)
"""Options of `stack.chat` that no body of OpenAI's has."""
_HERE = "the model here"
REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class _NotAsked:
    """Stands where the engine of a server stands, to be named in the contract."""

    model: str
    name: str = "remote"

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield from ()
        raise EngineError("a request that is explained reached its engine")


def command(
    file: Annotated[str, typer.Argument(metavar="REQUEST.json", help="The request; - reads standard input.")],
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Whose; default: the file's.")] = None,
    endpoint: Annotated[
        Endpoint | None,
        typer.Option("--endpoint", help="Whose body it is; by default chat, responses, or the options of stack.chat."),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="The server's engine, by its name in the gateway.")
    ] = REMOTE,
    model: ModelOption = None,
    policies: PoliciesOption = None,
    json: JsonOption = False,
) -> None:
    """Say what would happen to a request: served from where, or computed, and why. Nothing is done or stored.

    The file has a body as the gateway gets it, of /v1/chat/completions, /v1/responses or, with --endpoint, another;
    or the options of `stack.chat`, with `prompt` or `messages`. What names a model is explained as a request for a
    server of that name, unless --model names the model that runs here.
    """
    document = _document(file)
    named = document.get("model")
    is_remote = bool(named) and model is None
    if model is not None:
        document.pop("model", None)
    request = request_of(
        document, tenant=tenant, name=_name(file), endpoint=endpoint, in_process=not is_remote, engine=engine
    )
    from cachestack.stack import CacheStack

    stack: CacheStack
    if is_remote:
        stack = CacheStack.without_engine(policies=policies)
    else:
        stack = CacheStack.local(model=model, policies=policies)
    with stack:
        explained = stack.explain(request, engine=_NotAsked(str(named)) if is_remote else None)
    if json:
        print_json(
            {
                "would": explained.would,
                "tenant": request.tenant,
                "answer": explained.answer,
                "provenance": None if explained.provenance is None else dict(explained.provenance),
                "prompt_tokens": explained.prompt_tokens,
                "cached_tokens": explained.cached_tokens,
                "trace": explained.trace.as_dict(),
            }
        )
    else:
        typer.echo(str(explained))


def request_of(
    document: Mapping[str, Any],
    *,
    tenant: str | None,
    name: str,
    endpoint: Endpoint | None = None,
    in_process: bool = False,
    engine: str = REMOTE,
) -> Request:
    """A request from a body of an endpoint, as the gateway reads it, or from the options of `stack.chat`.

    `in_process`: for the model that runs here, whatever the body names; else `engine` is the one that would be asked,
    and counts: two servers' models of one name need not answer alike. Raises InputFileError.
    """
    read = _ENDPOINTS[endpoint] if endpoint is not None else _reader(document, name)
    if read is None:
        return _own_shape(document, tenant=tenant, name=name)
    given = Given(Principal(tenant or "default"), NONE, {})
    body = {**document, "model": document.get("model") or _HERE}
    models = Models((Offered(engine, _HERE if in_process else "", ("*",), in_process=in_process),))
    try:
        return read(models, body, given).request
    except RequestError as error:
        raise InputFileError(f"{name}: {error}") from None


def _reader(document: Mapping[str, Any], name: str) -> Reader | None:
    """None: the options of `stack.chat`."""
    shapes = [key for key in ("messages", "prompt", "input") if key in document]
    if len(shapes) != 1:
        raise InputFileError(f"{name}: give one of messages (a list), input (a response's) or prompt (a text)")
    if "prompt" in document or _ONLY_OWN & document.keys():
        return None
    return read_chat if "messages" in document else read_response


def _own_shape(document: Mapping[str, Any], *, tenant: str | None, name: str) -> Request:
    options = {key: value for key, value in document.items() if key not in ("messages", "prompt") and value is not None}
    if tenant is not None:
        options["tenant"] = tenant
    try:
        return build_request(document.get("messages", document.get("prompt")), **options)
    except (RequestError, TypeError, ValueError, AttributeError) as error:
        raise InputFileError(f"{name}: {error}") from None


def _document(file: str) -> dict[str, Any]:
    text = read_text(file, what="a request")
    try:
        document = json_module.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{_name(file)} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputFileError(f"{_name(file)} should hold one JSON object, not a {type(document).__name__}")
    return document


def _name(file: str) -> str:
    return "standard input" if file == "-" else str(Path(file))
