"""Which prompts are of one kind: made by the same code, with the same template, for the same tenant."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from cachestack.lint.logs import LoggedPrompt
from cachestack.lint.rendering import SYSTEM_ROLES

MIN_SHARED, SURELY_SHARED = 0.3, 30
MAX_KNOWN = 64
"""Of the families with a triple, so many are looked at: what more of them have tells none from another."""
HEAD_WORDS, TAIL_WORDS = 400, 100
WORD = re.compile(r"\w+")
NUMBER = re.compile(r"\w*\d\w*")


class Families:
    """Numbers for families. A prompt joins the one with which it shares most triples of words, if these are at least
    three tenths of the shorter of the two, or so many that only a template has them, before or behind a long document;
    what varies (numbers, ids) counts as one word."""

    def __init__(self) -> None:
        self._by_text: dict[tuple[str, str], int] = {}
        self._by_triple: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._sizes: list[int] = []

    def family_of(self, logged: LoggedPrompt) -> int:
        stable = _stable_text(logged)
        key = (logged.tenant, stable)
        if key not in self._by_text:
            self._by_text[key] = self._find(logged.tenant, set(_triples(stable)))
        return self._by_text[key]

    def _find(self, tenant: str, triples: set[str]) -> int:
        shared = Counter(family for triple in triples for family in self._by_triple.get((tenant, triple), ()))
        for family, count in shared.most_common(1):
            if count >= min(SURELY_SHARED, MIN_SHARED * min(len(triples), self._sizes[family])):
                return family
        family = len(self._sizes)
        self._sizes.append(max(1, len(triples)))
        for triple in triples:
            known = self._by_triple[tenant, triple]
            if len(known) < MAX_KNOWN:
                known.append(family)
        return family


def _stable_text(logged: LoggedPrompt) -> str:
    """What an application writes into its prompts, as far as the roles tell; else all of it."""
    if logged.text is not None:
        return logged.text
    system = [m.content for m in logged.messages if m.role in SYSTEM_ROLES]
    tools = [json.dumps(tool, sort_keys=True, ensure_ascii=False) for tool in logged.tools]
    return "\n".join([*system, *sorted(tools)] or [m.content for m in logged.messages])


def _triples(text: str) -> Iterator[str]:
    words = WORD.findall(NUMBER.sub("0", text.casefold()))
    if len(words) > HEAD_WORDS + TAIL_WORDS:
        words = [*words[:HEAD_WORDS], *words[-TAIL_WORDS:]]
    if len(words) < 3:
        yield " ".join(words)
    for i in range(len(words) - 2):
        yield " ".join(words[i : i + 3])
