"""Takes a body apart: what is taken is known, and all that remains counts in the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cachestack.bodies.call import Given
from cachestack.bodies.in_process import in_process_request
from cachestack.bodies.offered import Offered
from cachestack.bodies.turns import Turns
from cachestack.errors import RequestError
from cachestack.requests import PASSED_HEADERS, Dialect, Request, Sampling

_INT64 = 2**63


class Fields:
    """A body whose fields are taken one by one. A field that is null counts as left out.

    Every method raises RequestError that names the field.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.rest = dict(body)

    def take(self, name: str) -> Any:
        return self.rest.pop(name, None)

    def drop(self, *names: str) -> None:
        """Fields that cannot change the answer."""
        for name in names:
            self.rest.pop(name, None)

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise RequestError(f"{name} must be text, not {_kind(value)}")
        return value

    def required_text(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise RequestError(f"{name} is missing: give its name as text")
        return value

    def number(self, name: str) -> float | None:
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise RequestError(f"{name} must be a number, not {_kind(value)}")
        return float(value)

    def whole(self, name: str, minimum: int = -_INT64) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(f"{name} must be a whole number, not {_kind(value)}")
        if not minimum <= value < _INT64:
            raise RequestError(f"{name} must be at least {minimum} and below 2^63, not {value}")
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not (value is None or isinstance(value, bool)):
            raise RequestError(f"{name} must be true or false, not {_kind(value)}")
        return bool(value)

    def items(self, name: str) -> list[Any]:
        value = self.take(name)
        if not (value is None or isinstance(value, list)):
            raise RequestError(f"{name} must be a list, not {_kind(value)}")
        return value or []

    def open_tools(self, *names: str) -> list[Any]:
        """Fields that are as tools are: what they answer comes from elsewhere. They stay among the rest, too."""
        return [{name: self.rest[name]} for name in names if self.rest.get(name) not in (None, [])]

    def mapping(self, name: str) -> dict[str, Any]:
        value = self.take(name)
        if not (value is None or isinstance(value, dict)):
            raise RequestError(f"{name} must be an object, not {_kind(value)}")
        return dict(value or {})

    def stop(self, name: str) -> tuple[str, ...]:
        value = self.take(name)
        texts = [value] if isinstance(value, str) else value or []
        if not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            raise RequestError(f"{name} must be text or a list of texts")
        return tuple(texts)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a body asks, in our terms. `extra`: all that CacheStack does not know. `marks`: what counts and is no field.

    `is_stateful`: the answer depends on, or changes, what the provider keeps: no cache has a part in that.
    """

    dialect: Dialect
    turns: Turns
    sampling: Sampling
    tools: tuple[Any, ...] = ()
    response_format: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[str, Any] = field(default_factory=dict)
    is_stateful: bool = False


def request_of(asked: Asked, offered: Offered, model: str, body: Mapping[str, Any], given: Given) -> Request:
    """The Request for the engine that was named.

    For a remote engine everything counts, the dialect too: its endpoints need not answer alike, nor do two engines
    whose model has the same name. What a caller may name stands apart from what is said here. The engine in this
    process knows no dialects: what would not change its answer is left out, and what it cannot do is refused.
    """
    headers = {name: value for name in PASSED_HEADERS.get(asked.dialect, ()) if (value := given.headers.get(name))}
    if offered.in_process:
        return in_process_request(
            asked.turns, asked.sampling, asked.tools, asked.response_format, asked.extra, _standing(given)
        )
    extra: dict[str, Any] = {"dialect": asked.dialect, "engine": offered.engine, "fields": asked.extra, **headers}
    for name, said in (("beside", asked.turns.beside), ("marks", asked.marks)):
        if said:
            extra[name] = said
    standing = _standing(given) | ({"store": False, "lookup": False} if asked.is_stateful else {})
    return Request(
        messages=tuple(asked.turns.messages),
        model=offered.model or model,
        sampling=asked.sampling,
        tools=asked.tools,
        response_format=asked.response_format,
        extra=extra,
        dialect=asked.dialect,
        body=body,
        **standing,
    )


def _standing(given: Given) -> dict[str, Any]:
    """What does not come from the body."""
    who, wishes = given.principal, given.wishes
    return {
        "tenant": who.tenant, "user": who.user, "role": who.role, "epoch": who.epoch,
        "store": wishes.store, "lookup": wishes.lookup, "only_if_cached": wishes.only_if_cached,
        "max_age_s": wishes.max_age_s, "tags": wishes.tags, "ttl_s": wishes.ttl_s,
    }  # fmt: skip


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
