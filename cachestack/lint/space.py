"""Counting in characters, where there is no tokenizer and the caller says so."""

from __future__ import annotations

import numpy as np

from cachestack.engines.token_space import Tokens, Unit
from cachestack.requests import Message

NAMES = {"developer": "System"}


class Characters:
    """Counting without a tokenizer. Turns are written plainly: `System: …`, `User: …`."""

    unit: Unit = "characters"
    name = "no model"
    bos: str | None = None

    def render(self, messages: tuple[Message, ...]) -> str | None:
        return plain_turns(messages)

    def encode(self, text: str, *, is_rendered: bool) -> Tokens:
        codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int32)
        return Tokens(codes, np.arange(len(codes), dtype=np.int32))


def plain_turns(messages: tuple[Message, ...]) -> str:
    """For messages without a template that takes them."""
    turns = (f"{NAMES.get(m.role, m.role.capitalize())}: {m.content}\n\n" for m in messages)
    return "".join(turns) + "Assistant:"
