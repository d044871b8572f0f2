"""What prompts are counted and compared in: a model's tokens, or characters where that was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cachestack.requests import Message

Unit = Literal["tokens", "characters"]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """`ids` and, for each, the position in the text of its first character: both of shape (tokens,)."""

    ids: Ints
    starts: Ints

    def index_at(self, char: int) -> int:
        """How many tokens begin before the character at `char`."""
        return int(np.searchsorted(self.starts, char, side="left"))


class TokenSpace(Protocol):
    """`name` is the model's. `bos` is the text of its first token, where it has one that a prompt must hold once."""

    @property
    def unit(self) -> Unit: ...

    @property
    def name(self) -> str: ...

    @property
    def bos(self) -> str | None: ...

    def render(self, messages: tuple[Message, ...]) -> str | None:
        """The text that a model gets, ready for its answer; None for messages that its template refuses."""
        ...

    def encode(self, text: str, *, is_rendered: bool) -> Tokens:
        """`is_rendered`: a template has written the special tokens; else the tokenizer adds its own."""
        ...
