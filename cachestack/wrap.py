"""Wrapping a function `prompt → text`, sync or async, so that the cache answers what it can."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cachestack.aio import respond_async
from cachestack.asking import build_request
from cachestack.decisions import Response
from cachestack.engines.functions import AsyncFunctionEngine, FunctionEngine
from cachestack.errors import UsageError
from cachestack.requests import Request

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

_OWN = ("prompt", "tenant", "model", "version", "extra")  # `extra` holds the function's name and arguments
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The decorator that `stack.wrap(...)` gives."""

    stack: CacheStack
    tenant: str | Callable[..., str]
    model: str
    version: str | None
    name: str | None
    options: Mapping[str, Any]

    def __call__(self, function: F) -> F:
        name = self.name or self.stack.identities.identify(function)
        try:
            parameters = inspect.signature(function)
        except ValueError:
            raise UsageError(f"{name} does not say what it takes; wrap a function around it") from None
        _check_first_parameter(parameters, name)
        _check_options(self.options)

        def request_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
            bound = parameters.bind(*args, **kwargs)
            bound.apply_defaults()
            prompt_name, *_ = parameters.parameters
            others = {key: value for key, value in bound.arguments.items() if key != prompt_name}
            tenant = self.tenant(*args, **kwargs) if callable(self.tenant) else self.tenant
            return build_request(
                bound.arguments[prompt_name],
                tenant=tenant,
                model=self.model,
                version=self.version,
                extra={"function": name, "arguments": others},
                **self.options,
            )

        wrapped: Any
        if inspect.iscoroutinefunction(function):

            async def respond_later(*args: Any, **kwargs: Any) -> Response:
                engine = AsyncFunctionEngine(name, self.model, functools.partial(function, *args, **kwargs))
                return await respond_async(self.stack, request_of(args, kwargs), engine)

            @functools.wraps(function)
            async def ask_later(*args: Any, **kwargs: Any) -> str:
                return (await respond_later(*args, **kwargs)).text

            wrapped, wrapped_respond = ask_later, respond_later
        else:

            def respond(*args: Any, **kwargs: Any) -> Response:
                engine = FunctionEngine(name, self.model, functools.partial(function, *args, **kwargs))
                return self.stack.respond(request_of(args, kwargs), engine)

            @functools.wraps(function)
            def ask(*args: Any, **kwargs: Any) -> str:
                return respond(*args, **kwargs).text

            wrapped, wrapped_respond = ask, respond  # type: ignore[assignment]
        wrapped.respond = wrapped_respond
        return wrapped  # type: ignore[no-any-return]


def _check_options(options: Mapping[str, Any]) -> None:
    allowed = [name for name in inspect.signature(build_request).parameters if name not in _OWN]
    for option in options:
        if option not in allowed:
            taken = ", ".join(("tenant", "model", "version", "name", *allowed))
            raise UsageError(f"wrap(...) does not take {option}; it takes: {taken}")


def _check_first_parameter(signature: inspect.Signature, name: str) -> None:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first = next(iter(signature.parameters.values()), None)
    if first is None or first.kind not in kinds:
        raise UsageError(f"{name} must take the prompt as its first parameter")
