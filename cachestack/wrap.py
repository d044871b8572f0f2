"""Wrapping a function `prompt → text` of any kind, so that the cache answers what it can."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cachestack.aio import AsyncCacheStack, AsyncStream, respond_async
from cachestack.asking import build_request
from cachestack.decisions import Response
from cachestack.driver import Stream, drive
from cachestack.engines.functions import AsyncFunctionEngine, AsyncGeneratorEngine, FunctionEngine, GeneratorEngine
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

        make_engine, is_async = _kind_of(function)

        def opened(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Request, Any]:
            return request_of(args, kwargs), make_engine(name, self.model, functools.partial(function, *args, **kwargs))

        wrapped: F = (_asynchronous if is_async else _synchronous)(self.stack, function, opened)
        return wrapped


_Opened = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Request, Any]]


def _kind_of(function: Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """The engine for calls of this kind of function, and whether they are awaited."""
    if inspect.isasyncgenfunction(function):
        return AsyncGeneratorEngine, True
    if inspect.iscoroutinefunction(function):
        return AsyncFunctionEngine, True
    return GeneratorEngine if inspect.isgeneratorfunction(function) else FunctionEngine, False


def _synchronous(stack: CacheStack, function: F, opened: _Opened) -> Any:
    def respond(*args: Any, **kwargs: Any) -> Response:
        return stack.respond(*opened(args, kwargs))

    def stream(*args: Any, **kwargs: Any) -> Stream:
        run, engines = stack.open_run(*opened(args, kwargs))
        return Stream(drive(run, stack.performer, engines))

    @functools.wraps(function)
    def ask(*args: Any, **kwargs: Any) -> str:
        return respond(*args, **kwargs).text

    @functools.wraps(function)
    def pieces(*args: Any, **kwargs: Any) -> Generator[str, None, None]:
        with stream(*args, **kwargs) as chunks:
            for chunk in chunks:
                if chunk.text:
                    yield chunk.text

    return _with_rooms(pieces if inspect.isgeneratorfunction(function) else ask, respond, stream)


def _asynchronous(stack: CacheStack, function: F, opened: _Opened) -> Any:
    async def respond(*args: Any, **kwargs: Any) -> Response:
        return await respond_async(stack, *opened(args, kwargs))

    def stream(*args: Any, **kwargs: Any) -> AsyncStream:
        return AsyncCacheStack(stack).start(*opened(args, kwargs))

    @functools.wraps(function)
    async def ask(*args: Any, **kwargs: Any) -> str:
        return (await respond(*args, **kwargs)).text

    @functools.wraps(function)
    async def pieces(*args: Any, **kwargs: Any) -> AsyncGenerator[str, None]:
        async with stream(*args, **kwargs) as chunks:
            async for chunk in chunks:
                if chunk.text:
                    yield chunk.text

    return _with_rooms(pieces if inspect.isasyncgenfunction(function) else ask, respond, stream)


def _with_rooms(wrapped: Any, respond: Callable[..., Any], stream: Callable[..., Any]) -> Any:
    wrapped.respond, wrapped.stream = respond, stream
    return wrapped


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
