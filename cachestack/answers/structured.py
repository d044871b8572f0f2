"""Answers that are JSON or code: what a program reads is compared, not how it is laid out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from cachestack.answers.markdown import plain_spaces
from cachestack.answers.reading import Answer

MAX_TEXTS = 64
"""Pairs of texts within JSON that are compared as answers; with more it is not known whether they say the same."""
Leaves = list[tuple[str, str]]


class Differs(Exception):
    """Where two values differ: a path, and what each has there."""

    def __init__(self, path: str, x: Any, y: Any) -> None:
        super().__init__(path)
        self.evidence = {"path": path or "$", "x": _short(x), "y": _short(y)}


def as_json(answer: Answer) -> Any:
    """The value that all of an answer is, with its frames and fences taken off. Raises ValueError where it is none, or
    a lone word or number."""
    text = plain_spaces(answer.raw).strip()
    if answer.parts.blocks:
        if len(answer.parts.blocks) > 1 or len(answer.prose) > 200:
            raise ValueError("more than one block, or an explanation")
        text = answer.parts.blocks[0].strip()
    elif text[:1] not in "{[":
        text = answer.prose.strip()
    if text[:1] not in ("{", "["):
        raise ValueError("no object or array")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error


def differing_texts(x: Any, y: Any) -> Leaves:
    """The pairs of texts that stand at one place and differ. Raises Differs where anything else differs. Keys may come
    in any order; items of an array may not."""
    found: Leaves = []
    open_pairs: list[tuple[str, Any, Any]] = [("", x, y)]
    while open_pairs:
        path, a, b = open_pairs.pop()
        if isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                raise Differs(path, sorted(a.keys() - b.keys()), sorted(b.keys() - a.keys()))
            open_pairs += ((f"{path}.{key}" if path else key, a[key], b[key]) for key in a)
        elif isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                raise Differs(path, f"{len(a)} items", f"{len(b)} items")
            open_pairs += ((f"{path}[{i}]", one, other) for i, (one, other) in enumerate(zip(a, b, strict=True)))
        elif isinstance(a, str) and isinstance(b, str):
            if a != b:
                found.append((a, b))
        elif not _equal(a, b):
            raise Differs(path, a, b)
    return found


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return isinstance(a, (int, float)) and isinstance(b, (int, float)) and a == b


def _short(value: Any) -> str:
    return value[:80] if isinstance(value, str) else repr(value)[:80]


def code_lines(block: str) -> tuple[str, ...]:
    """Without blank lines, ends of lines and the width of an indentation: only which line is deeper counts."""
    lines = [line.expandtabs(4).rstrip() for line in block.split("\n") if line.strip()]
    depths = sorted({len(line) - len(line.lstrip()) for line in lines})
    level = {depth: number for number, depth in enumerate(depths)}
    return tuple(f"{level[len(line) - len(line.lstrip())]} {' '.join(line.split())}" for line in lines)


def same_code(ours: Iterable[str], theirs: Iterable[str]) -> bool:
    return [*map(code_lines, ours)] == [*map(code_lines, theirs)]


def differing_lines(ours: Iterable[str], theirs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The lines that only one side's code has, at most three of each."""
    a = [line for block in ours for line in code_lines(block)]
    b = [line for block in theirs for line in code_lines(block)]
    known, other = set(a), set(b)
    mine = [line[2:] for line in a if line not in other][:3]
    its = [line[2:] for line in b if line not in known][:3]
    yield "\n".join(mine), "\n".join(its)
