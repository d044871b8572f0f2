"""From tokens to pieces of text that can be sent at once: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REPLACEMENT = "\ufffd"


class Detokenizer:
    """Turns tokens into text one by one.

    A token is decoded together with a few before it, because what it reads as depends on them (spaces, bytes of one
    character). A piece that ends inside a character is held back until the character is whole.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._context = 0  # ids before this one are not decoded again
        self._sent = 0  # the text of ids before this one has been returned

    def add(self, token: int) -> str:
        """The text that `token` completes; often empty within an emoji."""
        self._ids.append(token)
        known, text = self._texts()
        if len(text) <= len(known) or text.endswith(REPLACEMENT):
            return ""
        self._context, self._sent = self._sent, len(self._ids)
        return text[len(known) :]

    def finish(self) -> str:
        """What was held back, without the bytes of an unfinished character."""
        known, text = self._texts()
        self._context = self._sent = len(self._ids)
        return text[len(known) :].rstrip(REPLACEMENT)

    def _texts(self) -> tuple[str, str]:
        known = self._decode(self._ids[self._context : self._sent])
        return known, self._decode(self._ids[self._context :])

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


class StopStrings:
    """Ends a text at the stop string that is complete first, which may span pieces and is not part of the text.

    Of two that end at the same place the longer one counts. How the text is cut into pieces makes no difference.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def add(self, piece: str) -> str:
        """The text that can be sent: all but an ending that might become a stop string."""
        if self.found:
            return ""
        text = self._held + piece
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.found, self._held = True, ""
            return text[: min(found)[1]]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back and did not become a stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest ending of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
