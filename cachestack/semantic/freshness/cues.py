"""What in a question says that its answer moves with time, or that it does not: words of English and French.

A cue is a name and a pattern over folded text (cues.txt). Cues are evidence that a person can read; how much each
counts is learnt (model.py), but for the phrases that are certain.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Changes = Literal["never", "slow", "fast"]

MAX_READ_CHARS = 2_000
"""More of a question is not read."""
_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "`": "'", "ʼ": "'"})
_SPACE = re.compile(r"\s+")
_LIST, _HEAD = re.compile(r"<\w+>"), re.compile(r"(<\w+>) =|\[([\w ]+)\]")


def folded(text: str) -> str:
    """Lower case, without accents, spaces evened out: what the patterns are written for."""
    lowered = unicodedata.normalize("NFKD", text[:MAX_READ_CHARS].translate(_APOSTROPHES)).lower()
    bare = "".join(c for c in lowered if not unicodedata.combining(c))
    return _SPACE.sub(" ", bare.replace("œ", "oe").replace("æ", "ae")).strip()


@dataclass(frozen=True, slots=True)
class Cues:
    """`by_name`: patterns in the order of the file. `fast` and `slow`: phrases that hold by themselves."""

    by_name: dict[str, re.Pattern[str]]
    fast: re.Pattern[str]
    slow: re.Pattern[str]

    def found(self, text: str) -> dict[str, str]:
        """The cues in folded text, each with the words that it was seen in."""
        seen = ((name, pattern.search(text)) for name, pattern in self.by_name.items())
        return {name: match[0].strip() for name, match in seen if match is not None}


@cache
def cues() -> Cues:
    """Those that come with the package, compiled at the first question."""
    patterns = {
        name: re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")
        for name, pattern in _read(files(__package__).joinpath("cues.txt").read_text("utf-8"))
    }
    fast, slow = patterns.pop("certain fast"), patterns.pop("certain slow")
    return Cues(patterns, fast, slow)


def _read(text: str) -> Iterator[tuple[str, str]]:
    lists: dict[str, list[str]] = {}
    named: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if head := _HEAD.fullmatch(line):
            lines = lists.setdefault(head[1], []) if head[1] else named.setdefault(head[2], [])
        elif not line.startswith("#"):
            lines.append(line)
    for name, alternatives in named.items():
        yield name, _LIST.sub(lambda found: "|".join(lists.get(found[0], [found[0]])), "|".join(alternatives))
