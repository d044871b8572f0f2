"""What tells one wrapped function from another, where its author gave it no name.

Two functions of one module may share a name: lambdas, functions made in a function, `ask` in two scripts, the version
before an edit and the one after. So the identity holds a digest of the code and of the plain values it closes over.
What cannot be described (a client that is closed over) is told apart within a stack only, by refusing the second.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from cachestack.errors import UsageError
from cachestack.keys import canonical_json, digest

_MAX_DEPTH = 8


@dataclass(slots=True)
class Identities:
    """Those of a stack's unnamed functions, each with the objects that its digest does not cover."""

    _opaque: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def identify(self, function: Callable[..., Any]) -> str:
        """`module.name#digest`. Raises UsageError where two functions could not be told apart."""
        if not isinstance(function, FunctionType):
            kind = type(function).__name__
            raise UsageError(f"what a {kind} answers depends on more than its code; give wrap(...) a name= for it")
        opaque: list[object] = []
        code = _described(function, opaque, 0)
        identity = f"{function.__module__}.{function.__qualname__}#{code[:16]}"
        if not opaque:
            return identity
        with self._lock:
            before = self._opaque.setdefault(identity, tuple(opaque))
        if len(before) != len(opaque) or any(x is not y for x, y in zip(before, opaque, strict=True)):
            raise UsageError(
                f"{function.__qualname__} was wrapped before with other objects around it, and would share its answers "
                "with that one; give each a name= of its own (or one name=, if they do answer alike)"
            )
        return identity


def _described(value: Any, opaque: list[object], depth: int) -> str:
    """A digest of a function or of a value that it closes over; what it leaves out is added to `opaque`."""
    if isinstance(value, FunctionType) and depth < _MAX_DEPTH:
        inside = [_described(_content(cell), opaque, depth + 1) for cell in value.__closure__ or ()]
        wrapped = getattr(value, "__wrapped__", None)
        inside += [] if wrapped is None else [_described(wrapped, opaque, depth + 1)]
        name = f"{value.__module__}.{value.__qualname__}".encode()
        return digest(b"function", name, _code(value.__code__).encode(), *(part.encode() for part in inside))
    try:
        return digest(b"value", canonical_json(value))
    except (TypeError, ValueError):
        opaque.append(value)
        return digest(b"object", type(value).__qualname__.encode())


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet: the function closes over itself
        return None


def _code(code: CodeType) -> str:
    """Of the instructions and constants; lines and file names do not count."""
    parts: Sequence[str] = (*code.co_names, *code.co_varnames, *code.co_freevars)
    constants = (_constant(value) for value in code.co_consts)
    return digest(code.co_code, "\0".join(parts).encode(), *(text.encode() for text in constants))


def _constant(value: Any) -> str:
    if inspect.iscode(value):
        return _code(value)
    if isinstance(value, frozenset):  # its order is another in every process
        return f"frozenset {sorted(map(repr, value))}"
    return f"{type(value).__name__} {value!r}"
