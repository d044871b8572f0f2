"""Answers too plain to be judged by their wording: a word or three that say nothing of answering, and what a stand-in
for a model replies (`echo: …`, `an answer`). Nor is JSON with values in it, which a system prompt may ask for."""

from __future__ import annotations

import json
import re
from typing import Any

from cachestack.semantic.admission.features import MAX_JSON_CHARS, fold, talks

MAX_CHARS = 40
MAX_WORDS = 3
MAX_BEFORE = 40
"""Characters before a question that is said back."""

MIN_VALUES = 3

_REPLY = re.compile(r"(?:(?:an?|the|another|one)(?: \w{1,12})? )?answer(?: (?:\d{1,6}|[a-z]))?[.!]?")
_NUMBERED = re.compile(r"Answer \d{1,6}: ")
_SAID_BACK = re.compile(r"[^?]{0,40}: ?|\W?(?:(?:an?|the) )?answer (?:\d{1,6} )?(?:(?:of|by|from) \w+ \w+ )?to \W?")
_WORD = re.compile(r"[^\W\d_]+")


def is_plain(question: str, answer: str) -> bool:
    """Whether the model has nothing to go by. What the rules find comes first."""
    stripped = answer.strip()
    asked = question.strip()
    before, found, after = stripped.partition(asked) if asked else ("", "", "")
    if found and _SAID_BACK.fullmatch(fold(before[: MAX_BEFORE + 1])) and len(before) <= MAX_BEFORE and len(after) <= 2:
        return True
    if _NUMBERED.match(stripped):
        return True
    if stripped[:1] in ("{", "["):
        return _num_values(stripped) >= MIN_VALUES
    if len(stripped) > MAX_CHARS:
        return False
    said = fold(stripped)
    if _REPLY.fullmatch(said):
        return True
    words = _WORD.findall(said)
    return 0 < len(words) <= MAX_WORDS and said[0].isalnum() and said[-1].isalnum() and not any(map(talks, words))


def _num_values(text: str) -> int:
    """Values of whole JSON that are not empty."""
    if len(text) > MAX_JSON_CHARS:
        return 0
    try:
        open_values: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        return 0
    found = 0
    while open_values:
        value = open_values.pop()
        if isinstance(value, (dict, list)):
            open_values += value.values() if isinstance(value, dict) else value
        else:
            found += value not in (None, "")
    return found
