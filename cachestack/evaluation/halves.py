"""Two halves of a file's pairs, so that what is tuned on one can be measured on the other.

Pairs that share a text are in the same half: texts are joined to groups (connected components), and a hash of the group
and a seed says which half it is in. The order of the lines does not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

from cachestack.evaluation.pairs import Pair
from cachestack.keys import normalise
from cachestack.requests import Message

Half = Literal["a", "b"]


def only_half(pairs: Sequence[Pair], half: Half, seed: int = 0) -> tuple[Pair, ...]:
    """The pairs of one half, in order. The other half holds all the others."""
    groups = _Groups()
    for pair in pairs:
        groups.join([*_texts(pair.a), *_texts(pair.b)])
    return tuple(pair for pair in pairs if _half(groups.name(_texts(pair.a)[0]), seed) == half)


def _texts(messages: tuple[Message, ...]) -> list[str]:
    """Digests of the last message, and of a conversation as a whole: case and spaces do not tell texts apart."""
    turns = [[message.role, " ".join(normalise(message.content).casefold().split())] for message in messages]
    found = [turns[-1][1]]
    if len(turns) > 1:
        found.append(json.dumps(turns))
    return [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in found]


def _half(group: str, seed: int) -> Half:
    return "a" if hashlib.sha256(f"{seed} {group}".encode()).digest()[0] % 2 == 0 else "b"


class _Groups:
    """Union-find over digests. A group is named for its smallest member, whatever the order of joining."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def join(self, members: Sequence[str]) -> None:
        names = {self.name(member) for member in members}
        smallest = min(names)
        for name in names:
            self._above[name] = smallest

    def name(self, member: str) -> str:
        path = []
        while (above := self._above.setdefault(member, member)) != member:
            path.append(member)
            member = above
        for step in path:
            self._above[step] = member
        return member
