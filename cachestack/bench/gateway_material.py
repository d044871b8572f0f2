"""Requests over HTTP as bytes, ready to be sent, and the answers that belong to them."""

from __future__ import annotations

import json
from dataclasses import dataclass

MODEL = "scripted"
CHAT = "/v1/chat/completions"
FILLER = "It is said so in the manual, and it has been tried. " * 8


@dataclass(frozen=True, slots=True)
class Prepared:
    """`data` is the whole request; `answer` the text that must come back."""

    data: bytes
    answer: str

    @property
    def mark(self) -> bytes:
        """What no other answer has, as it stands in JSON."""
        return self.answer.partition(".")[0].encode()


def answer_to(question: str) -> str:
    """What the scripted upstream says."""
    return f"This answers {question!r}. {FILLER}".strip()


def chat_request(question: str, *, stream: bool = False) -> Prepared:
    """As the clients of OpenAI send it."""
    body = {
        "messages": [
            {"role": "system", "content": "You answer questions about one machine, in a few sentences."},
            {"role": "user", "content": question},
        ],
        "model": MODEL,
        "temperature": 0,
    } | ({"stream": True} if stream else {})
    return Prepared(_post(json.dumps(body).encode()), answer_to(question))


def _post(body: bytes) -> bytes:
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer none\r\nuser-agent: cachestack-bench\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def kept_question(number: int) -> str:
    return f"How is part {number:05d} cleaned"


def new_question(kind: str, number: int) -> str:
    return f"What does the {kind} sign {number:06d} mean"
