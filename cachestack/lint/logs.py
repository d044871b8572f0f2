"""From request logs to prompts: JSONL, JSON, or one prompt as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from cachestack.errors import InputFileError, RequestError
from cachestack.items import decode_text
from cachestack.prompts import PARTS, StructuredPrompt
from cachestack.requests import ROLES, Message, Request

LogFormat = Literal["jsonl", "json", "text"]
SUFFIXES: Mapping[str, LogFormat] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}
TABLES = (".csv", ".tsv", ".xlsx", ".parquet")
GZIP = b"\x1f\x8b"
KEYS = "prompt, messages, or the parts of a structured prompt"
_WRAPPINGS = ("body", "request")  # as batch files and proxies have them


@dataclass(frozen=True, slots=True)
class LoggedPrompt:
    """One prompt of a log: `messages`, or `text` as the model gets it. `source` says where it stood. `has_other_parts`:
    images and the like stand in it, which count nothing here."""

    messages: tuple[Message, ...] = ()
    text: str | None = None
    tools: tuple[Any, ...] = ()
    tenant: str = "default"
    user: str | None = None
    source: str = ""
    has_other_parts: bool = False


def read_log(path: str, *, format: LogFormat | None = None, stdin: BinaryIO | None = None) -> Iterator[LoggedPrompt]:
    """The prompts of a file in order; `-` is standard input. Raises InputFileError, naming file and line.

    The format follows the suffix; without one that is known, a first line that is a JSON object or string means JSONL,
    and a whole that is a JSON object or list means JSON.
    """
    name = "standard input" if path == "-" else path
    suffix = Path(path).suffix.lower()
    if format is None and suffix in TABLES:
        raise InputFileError(f"{name} is a table; write one JSON object a line (.jsonl) with messages or a prompt")
    text = _text_of(path, name, stdin)
    if not text.strip():
        raise InputFileError(f"{name} is empty; it should hold requests as JSONL, or a prompt as text")
    chosen = format or SUFFIXES.get(suffix) or _sniff(text)
    if chosen == "text":
        yield LoggedPrompt(text=text, source=name)
    elif chosen == "json":
        document = _parsed(text, name)
        if not isinstance(document, list) or _is_conversation(document):
            yield as_logged(document, name)
        else:
            for number, row in enumerate(document, start=1):
                yield as_logged(row, f"{name} item {number}")
    else:
        for number, line in enumerate(text.split("\n"), start=1):  # not splitlines(): U+2028 is legal inside a string
            if line.strip():
                source = f"{name} line {number}"
                yield as_logged(_parsed(line, source), source)


def as_logged(row: Any, source: str) -> LoggedPrompt:
    """A prompt from what a log or a caller has: text, a mapping, messages, a Request, or a StructuredPrompt.

    Raises InputFileError for anything else. Keys that are not needed are passed over.
    """
    if isinstance(row, LoggedPrompt):
        return row
    if isinstance(row, str):
        return LoggedPrompt(text=row, source=source)
    if isinstance(row, Request):
        return LoggedPrompt(row.messages, None, row.tools, row.tenant, row.user, source)
    if isinstance(row, StructuredPrompt):
        return LoggedPrompt(_messages_of(row), source=source)
    if _is_conversation(row):
        row = {"messages": list(row)}
    if not isinstance(row, Mapping):
        raise InputFileError(f"{source} is neither text nor an object with {KEYS}")
    inner: Mapping[str, Any] = next((row[key] for key in _WRAPPINGS if isinstance(row.get(key), Mapping)), {})
    merged: dict[str, Any] = {**row, **inner}
    tools = merged.get("tools") or ()
    return LoggedPrompt(
        messages=_turns(merged, source),
        text=_raw_text(merged, source),
        tools=tuple(tools) if isinstance(tools, Sequence) and not isinstance(tools, str) else (tools,),
        tenant=str(merged.get("tenant") or "default"),
        user=_user_of(merged),
        source=source,
        has_other_parts=_has_other_parts(merged),
    )


def _is_conversation(row: Any) -> bool:
    """Messages by themselves, as an application sends them."""
    return (
        isinstance(row, (list, tuple))
        and bool(row)
        and all(
            isinstance(item, Message) or (isinstance(item, Mapping) and "role" in item and "messages" not in item)
            for item in row
        )
    )


def _has_other_parts(row: Mapping[str, Any]) -> bool:
    messages = row.get("messages")
    contents = [m.get("content") for m in messages or () if isinstance(m, Mapping)]
    parts = [part for content in (row.get("prompt"), *contents) if isinstance(content, list) for part in content]
    return any(isinstance(part, Mapping) and not isinstance(part.get("text"), str) for part in parts)


def _turns(row: Mapping[str, Any], source: str) -> tuple[Message, ...]:
    system = row.get("system")
    head = (Message("system", _content(system, source)),) if system else ()
    if row.get("messages") is not None:
        listed = row["messages"]
        if not isinstance(listed, (list, tuple)) or not listed:
            raise InputFileError(f"{source}: messages must be a list that is not empty")
        return (*head, *(_message(item, source) for item in listed))
    if row.get("prompt") is not None:
        return (*head, Message("user", _content(row["prompt"], source))) if head else ()
    parts = {key: row[key] for key in PARTS if key in row}
    if not parts:
        raise InputFileError(f"{source} has none of the keys that make a prompt: {KEYS}")
    try:
        return _messages_of(StructuredPrompt.from_json(parts))
    except RequestError as error:
        raise InputFileError(f"{source}: {error}") from None


def _raw_text(row: Mapping[str, Any], source: str) -> str | None:
    prompt = row.get("prompt")
    if isinstance(prompt, list) and sum(isinstance(part, str) for part in prompt) > 1:
        raise InputFileError(f"{source} holds {len(prompt)} prompts; put each on a line of its own")
    if row.get("messages") is None and prompt is not None and not row.get("system"):
        return _content(prompt, source)
    return None


def _messages_of(prompt: StructuredPrompt) -> tuple[Message, ...]:
    """Without a query, what is stable alone."""
    return prompt.messages if prompt.user_query is not None else prompt.stable


def _message(item: Any, source: str) -> Message:
    if isinstance(item, Message):
        return item
    if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
        raise InputFileError(f"{source}: each message needs a role, and content")
    role = "tool" if item["role"] == "function" else item["role"]
    if role not in ROLES:
        raise InputFileError(f"{source}: message role {role!r} is not known; allowed: {', '.join(ROLES)}")
    content = _content(item.get("content"), source)
    calls = item.get("tool_calls")
    return Message(role, content + json.dumps(calls, ensure_ascii=False) if calls else content)


def _content(value: Any, source: str) -> str:
    """Text; the texts of a list of parts. What is no text (an image) has no tokens here."""
    parts = value if isinstance(value, list) else [value]
    texts = [part.get("text") if isinstance(part, Mapping) and parts is value else part for part in parts]
    wrong = next((text for text in texts if not (text is None or isinstance(text, str))), None)
    if wrong is not None:
        raise InputFileError(f"{source}: content must be text or a list of parts, not {type(wrong).__name__}")
    return "".join(text or "" for text in texts)


def _user_of(row: Mapping[str, Any]) -> str | None:
    metadata = row.get("metadata")
    user = row.get("user") or (metadata.get("user") if isinstance(metadata, Mapping) else None)
    if isinstance(user, Mapping):
        user = user.get("name") or user.get("email") or user.get("id")
    return str(user) if user is not None else None


def _text_of(path: str, name: str, stdin: BinaryIO | None) -> str:
    if path == "-" and stdin is None and sys.stdin is None:
        raise InputFileError(f"{name} is closed")
    try:
        raw = (stdin or sys.stdin.buffer).read() if path == "-" else Path(path).read_bytes()
    except FileNotFoundError:
        raise InputFileError(f"{name} does not exist") from None
    except OSError as error:
        raise InputFileError(f"{name} cannot be read: {error.strerror}") from error
    if raw.startswith(GZIP):
        raise InputFileError(f"{name} is compressed: gunzip -c FILE | cachestack lint -")
    return decode_text(raw, name)


def _sniff(text: str) -> LogFormat:
    first = text.lstrip().split("\n", 1)[0]
    forms: tuple[tuple[LogFormat, str, tuple[type, ...]], ...] = (
        ("jsonl", first, (dict, str)),
        ("json", text, (dict, list)),
    )
    for form, part, kinds in forms:
        try:
            if isinstance(json.loads(part), kinds):
                return form
        except (ValueError, RecursionError):
            continue
    return "text"


def _parsed(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputFileError(f"{source} is not JSON: {error.msg}") from None
    except RecursionError:
        raise InputFileError(f"{source} is nested too deeply") from None
    except ValueError as error:  # a whole number of thousands of digits
        raise InputFileError(f"{source} can't be read: {error}") from None
