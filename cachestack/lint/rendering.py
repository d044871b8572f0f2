"""A logged prompt as the text and the tokens that a model would get, and where its messages stand in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from cachestack.engines.token_space import Tokens, TokenSpace
from cachestack.lint.logs import LoggedPrompt
from cachestack.lint.space import plain_turns
from cachestack.requests import Message

SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` of the text: a message by its number, the tools (-1), or a whole text (0)."""

    start: int
    end: int
    role: str
    number: int

    @property
    def name(self) -> str:
        if self.role == "tools":
            return "the tools"
        return "the text" if self.role == "text" else f"message {self.number + 1} ({self.role})"


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """`refused`: the model's template does not take these messages; they stand as plain turns."""

    logged: LoggedPrompt
    text: str
    spans: tuple[Span, ...]
    tokens: Tokens
    refused: bool = False

    @property
    def num_tokens(self) -> int:
        return len(self.tokens.ids)

    def span_at(self, char: int) -> Span | None:
        """The span that holds the character, or ends right before it."""
        return next((s for s in self.spans if s.start <= char <= s.end), None)

    def num_between(self, start: int, end: int, *, beyond: int = 0) -> int:
        """Tokens that begin in these characters, not counting the first `beyond` tokens of the prompt."""
        return max(0, self.tokens.index_at(end) - max(self.tokens.index_at(start), beyond))


def render(logged: LoggedPrompt, space: TokenSpace) -> Prompt:
    """Tools stand as JSON, one a line, before the messages: where most templates and servers put them."""
    if logged.text is not None:
        text = _valid(logged.text)
        tokens = space.encode(text, is_rendered=False)
        return Prompt(logged, text, (Span(0, len(text), "text", 0),), tokens)
    messages = tuple(replace(m, content=_valid(m.content)) for m in logged.messages)
    rendered = space.render(messages) if messages else ""
    body = plain_turns(messages) if rendered is None else rendered
    tools = "".join(_valid(json.dumps(tool, ensure_ascii=False)) + "\n" for tool in logged.tools)
    text = tools + body
    spans = (Span(0, len(tools), "tools", -1),) if tools else ()
    tokens = space.encode(text, is_rendered=True)
    return Prompt(logged, text, (*spans, *_spans(messages, text, len(tools))), tokens, refused=rendered is None)


def _spans(messages: tuple[Message, ...], text: str, at: int) -> list[Span]:
    """Where the contents stand; one that a template rewrites has no span."""
    spans: list[Span] = []
    for number, message in enumerate(messages):
        content = message.content.strip()
        found = text.find(content, at) if content else -1
        if found >= 0:
            spans.append(Span(found, found + len(content), message.role, number))
            at = found + len(content)
    return spans


def _valid(text: str) -> str:
    """Without halves of surrogate pairs, which no tokenizer takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
