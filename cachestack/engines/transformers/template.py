"""From messages to the text of a prompt, by the model's chat template.

Three ways, chosen for each request:

- the template as it is;
- merged, where the template refuses or drops system messages: their text goes in front of the next user message;
- plain, for a model without a template: `System: …`, `User: …`, `Assistant: …`, a blank line between turns.

Templates that print the current date would change the prompt's first tokens at midnight, and with them every kept
prefix and answer. They are given a fixed date, by both ways in which templates ask for it: a variable `date_string`,
and a function `strftime_now`. Transformers hands no functions through to a template, so a macro of that name is put
before it.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cachestack.errors import RequestError
from cachestack.requests import Message, Request

FIXED_DATE = datetime.date(2024, 7, 26)
SYSTEM_ROLES = ("system", "developer")
PLAIN_STOPS = ("\nUser:",)
KWARGS_KEY = "chat_template_kwargs"
DATES_NAME = "cachestack_dates"
# The line end after the macro is taken away by `trim_blocks`; the template begins at the beginning of a line as before.
DATE_MACRO = (
    "{%- macro strftime_now(format) -%}{{ "
    f"{DATES_NAME}[format] if format in {DATES_NAME} else {DATES_NAME}['']"
    " }}{%- endmacro %}\n"
)
DATE_FORMAT = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1""")

Mode = Literal["native", "merged", "plain"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of a prompt. `add_special_tokens`: only a plain prompt lets the tokenizer add its BOS; a template
    writes it itself. `stops`: stop strings that the format needs."""

    text: str
    mode: Mode
    add_special_tokens: bool = False
    stops: tuple[str, ...] = ()


class ChatTemplate:
    """Renders messages for one tokenizer. Raises RequestError for messages that its template refuses."""

    def __init__(self, tokenizer: Any, date: datetime.date = FIXED_DATE) -> None:
        self._tokenizer = tokenizer
        self._date = date

    @property
    def source(self) -> str | None:
        """The template's text (all of them, where a tokenizer has several by name)."""
        source = getattr(self._tokenizer, "chat_template", None)
        return str(source) if source else None

    def render(self, request: Request) -> Rendered:
        if self.source is None:
            text = plain_text(request.messages, generation_prompt=True)
            return Rendered(text, "plain", add_special_tokens=True, stops=PLAIN_STOPS)
        try:
            text = self.text(request, request.messages, "native", generation_prompt=True)
            if all(s.strip() in text for s in request.system):
                return Rendered(text, "native")
        except RequestError:
            if not request.system:
                raise
        return Rendered(self.text(request, request.messages, "merged", generation_prompt=True), "merged")

    def text(self, request: Request, messages: Sequence[Message], mode: Mode, *, generation_prompt: bool) -> str:
        """`messages` in the given way, with the tools and template arguments of `request`."""
        from jinja2.exceptions import TemplateError

        if mode == "plain":
            return plain_text(messages, generation_prompt=generation_prompt)
        if mode == "merged":
            messages = merge_system(messages)
        turns = [{"role": "system" if m.role == "developer" else m.role, "content": m.content} for m in messages]
        tools = list(request.tools) or None
        arguments = self._arguments(request, tools)
        try:
            rendered = self._tokenizer.apply_chat_template(
                turns, tools=tools, tokenize=False, add_generation_prompt=generation_prompt, **arguments
            )
        except (TemplateError, TypeError, ValueError, KeyError, IndexError) as error:
            raise RequestError(f"the model's chat template refuses these messages: {error}") from error
        return str(rendered)

    def _arguments(self, request: Request, tools: list[Any] | None) -> dict[str, Any]:
        given = request.extra.get(KWARGS_KEY, {})
        if not isinstance(given, Mapping):
            raise RequestError(f"{KWARGS_KEY} must be a mapping of template arguments, not {type(given).__name__}")
        arguments = {"date_string": f"{self._date:%d %b %Y}"} | dict(given)
        source = self._tokenizer.get_chat_template(tools=tools)
        if "strftime_now" in source:
            formats = {found[2] for found in DATE_FORMAT.finditer(source)}
            dates = {"": self._date.isoformat()} | {form: self._date.strftime(form) for form in formats}
            arguments |= {"chat_template": DATE_MACRO + source, DATES_NAME: dates}
        return arguments


def merge_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """System text put in front of the next user message; a user message of its own where none follows."""
    merged: list[Message] = []
    pending: list[str] = []
    for message in messages:
        if message.role in SYSTEM_ROLES:
            pending.append(message.content)
        elif message.role == "user" and pending:
            merged.append(replace(message, content="\n\n".join([*pending, message.content])))
            pending = []
        else:
            merged.append(message)
    if pending:
        merged.append(Message("user", "\n\n".join(pending)))
    return tuple(merged)


def plain_text(messages: Sequence[Message], *, generation_prompt: bool) -> str:
    names = {"developer": "System"}
    turns = [f"{names.get(m.role, m.role.capitalize())}: {m.content}\n\n" for m in messages]
    return "".join(turns) + ("Assistant:" if generation_prompt else "")
