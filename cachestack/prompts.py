"""Structured prompts: the parts of a prompt by what they are, put in the order that a prefix cache can use.

::

    system_instructions ┐
    cached_context …    ┘ one system message        stable: the same from call to call
    examples …            user and assistant turns   ── the boundary of the prefix layer ──
    user_query            the last user message      what varies

Instructions and context stand in one system message, parted by blank lines: a chat template with a system role takes
it as it is, one without gets its text in front of the first user message (the first example's, where there is one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cachestack.errors import RequestError
from cachestack.requests import Message

PARTS = ("system_instructions", "cached_context", "examples", "user_query")


@dataclass(frozen=True, slots=True)
class Part:
    """A text and the version of its source, by which `stack.invalidate(version=...)` finds what was made of it."""

    text: str
    version: str | None = None

    def __post_init__(self) -> None:
        if not _is_text(self.text):
            raise RequestError(f"a part of a prompt must be text that is not empty, not {self.text!r}")
        _check_version(self.version)


@dataclass(frozen=True, slots=True)
class Examples:
    """Few-shot examples, (user, assistant) each, and one version for all of them. The order given is the order kept."""

    pairs: tuple[tuple[str, str], ...]
    version: str | None = None

    def __post_init__(self) -> None:
        _check_version(self.version)
        object.__setattr__(self, "pairs", tuple(_pair(pair) for pair in _listed(self.pairs, "examples", "Examples or")))


@dataclass(frozen=True, slots=True)
class StructuredPrompt:
    """A prompt in parts; give it wherever a prompt is taken. Every part may be text or a `Part` with a version.

    `cached_context` is one part or several. Without `user_query` it is a template for `with_query`. Parts are held as
    `Part` and `Examples` whatever they were given as, so that equal prompts are equal. Raises RequestError.
    """

    system_instructions: str | Part | None = None
    cached_context: str | Part | Sequence[str | Part] = ()
    examples: Examples | Sequence[tuple[str, str]] = ()
    user_query: str | Part | None = None

    def __post_init__(self) -> None:
        context = self.cached_context
        several = (
            (context,) if isinstance(context, (str, Part)) else _listed(context, "cached_context", "text, a Part, or")
        )
        examples = self.examples if isinstance(self.examples, Examples) else Examples(self.examples)  # type: ignore[arg-type]
        object.__setattr__(self, "system_instructions", _part(self.system_instructions, "system_instructions"))
        object.__setattr__(self, "cached_context", tuple(_part(part, "cached_context") for part in several))
        object.__setattr__(self, "examples", examples)
        object.__setattr__(self, "user_query", _part(self.user_query, "user_query"))

    def with_query(self, text: str | Part) -> StructuredPrompt:
        """The same stable parts with another question."""
        return replace(self, user_query=text)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Stable parts first, the query last. Raises RequestError without a query."""
        if not isinstance(self.user_query, Part):
            raise RequestError("the prompt has no user_query; give one, or use with_query(text)")
        return (*self.stable, Message("user", self.user_query.text))

    @property
    def stable(self) -> tuple[Message, ...]:
        """The messages before the query: their number is the request's `stable_messages`."""
        texts = [part.text for part in self._system_parts]
        system = (Message("system", "\n\n".join(texts)),) if texts else ()
        pairs = self._examples.pairs
        return (*system, *(m for user, said in pairs for m in (Message("user", user), Message("assistant", said))))

    @property
    def versions(self) -> tuple[str | None, ...]:
        """Of the instructions, each part of the context, the examples and the query, in this order; None where a part
        has none. Empty where no part has one."""
        parts = (self.system_instructions, *self._context, self._examples, self.user_query)
        versions = tuple(getattr(part, "version", None) for part in parts)
        return versions if any(version is not None for version in versions) else ()

    @staticmethod
    def from_json(document: str | bytes | Mapping[str, Any]) -> StructuredPrompt:
        """From JSON text, or the same as a mapping. Raises RequestError that names the place and what is allowed."""
        try:
            if isinstance(document, (str, bytes)):
                form = _PromptForm.model_validate_json(document)
            else:
                form = _PromptForm.model_validate(document)
        except ValidationError as error:
            raise RequestError(_explained(error)) from None
        shots = form.examples
        listed = shots.pairs if isinstance(shots, _ExamplesForm) else shots or ()
        context = form.cached_context if isinstance(form.cached_context, list) else [form.cached_context]
        return StructuredPrompt(
            system_instructions=_of_form(form.system_instructions),
            cached_context=[part for part in map(_of_form, context) if part is not None],
            examples=Examples(
                tuple((pair.user, pair.assistant) for pair in listed),
                shots.version if isinstance(shots, _ExamplesForm) else None,
            ),
            user_query=_of_form(form.user_query),
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-able values that `from_json` reads back as an equal prompt. Parts without a version are plain text."""
        pairs: Any = [{"user": user, "assistant": said} for user, said in self._examples.pairs]
        if self._examples.version is not None:
            pairs = {"pairs": pairs, "version": self._examples.version}
        document = {
            "system_instructions": _plain(self.system_instructions),
            "cached_context": [_plain(part) for part in self._context],
            "examples": pairs,
            "user_query": _plain(self.user_query),
        }
        return {name: value for name, value in document.items() if value not in (None, [])}

    @property
    def _context(self) -> tuple[Part, ...]:
        return self.cached_context  # type: ignore[return-value]

    @property
    def _examples(self) -> Examples:
        return self.examples  # type: ignore[return-value]

    @property
    def _system_parts(self) -> tuple[Part, ...]:
        head = self.system_instructions
        return (*((head,) if isinstance(head, Part) else ()), *self._context)


def _part(value: Any, name: str) -> Part | None:
    if value is None or isinstance(value, Part):
        return value
    if not isinstance(value, str):
        raise RequestError(f"{name} must be text or a Part, not {type(value).__name__}")
    return Part(value)


def _listed(value: Any, name: str, besides: str) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise RequestError(f"{name} must be {besides} a list, not {type(value).__name__}")
    if any(item is None for item in value):
        raise RequestError(f"{name} must not hold None")
    return tuple(value)


def _pair(value: Any) -> tuple[str, str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise RequestError(f"an example is a pair (user, assistant), not {value!r}")
    user, said = value
    for text in (user, said):
        if not isinstance(text, str) or not text.strip():
            raise RequestError(f"the texts of an example must not be empty, nor anything but text: {value!r}")
    return user, said


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _check_version(version: Any) -> None:
    if version is not None and (not isinstance(version, str) or not version):
        raise RequestError(f"a version is a text that is not empty, or None, not {version!r}")


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _PartForm(_Form):
    text: str
    version: str | None = None


class _PairForm(_Form):
    user: str
    assistant: str


class _ExamplesForm(_Form):
    pairs: list[_PairForm]
    version: str | None = None


class _PromptForm(_Form):
    system_instructions: str | _PartForm | None = None
    cached_context: str | _PartForm | list[str | _PartForm] | None = None
    examples: list[_PairForm] | _ExamplesForm | None = None
    user_query: str | _PartForm | None = None


_ALLOWED = {
    "system_instructions": "text, or {text, version}",
    "cached_context": "text, {text, version}, or a list of these",
    "examples": "a list of {user, assistant}, or {pairs, version}",
    "user_query": "text, or {text, version}",
}


def _of_form(form: str | _PartForm | None) -> Part | None:
    return Part(form.text, form.version) if isinstance(form, _PartForm) else _part(form, "")


def _plain(part: Any) -> Any:
    if not isinstance(part, Part):
        return None
    return part.text if part.version is None else {"text": part.text, "version": part.version}


def _explained(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = str(first["loc"][0]) if first["loc"] else ""
    if where in _ALLOWED:
        return f"structured prompt: {where} must be {_ALLOWED[where]}"
    if where:
        return f"structured prompt: the key {where!r} is not known; allowed: {', '.join(PARTS)}"
    return f"structured prompt: not a JSON object with the keys {', '.join(PARTS)} ({first['msg']})"
