"""Things that are the same in two prompts but stand in another order: tools, keys of JSON, examples."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from cachestack.lint.pieces import Piece
from cachestack.lint.rendering import SYSTEM_ROLES, Prompt, Span
from cachestack.requests import Message

MAX_JSON_LOOK_BACK = 4000
MAX_OPENINGS = 40
MAX_BLOCKS = 200
MIN_SHOTS_SHARED = 0.6
OPENING = re.compile(r"[{\[]")
DECODER = json.JSONDecoder()


def order_piece(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    """The region that holds the same things in another order, or None."""
    return (
        _tools(earlier, later, i, j)
        or _keys(earlier.text, later.text, i, j)
        or _shots(earlier, later, i, j)
        or _blocks(earlier, later, i, j)
    )


def _tools(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    spans = earlier.span_at(i), later.span_at(j)
    if spans[0] is None or spans[1] is None or not spans[0].role == spans[1].role == "tools":
        return None
    first, second = ([json.dumps(t, sort_keys=True) for t in p.logged.tools] for p in (earlier, later))
    if first == second:
        kind, share = "key_order", 1.0
    elif sorted(first) == sorted(second):
        kind, share = "tool_order", 1.0
    else:
        common = sum((Counter(first) & Counter(second)).values())
        kind, share = "tool_set", common / max(len(first), len(second))
    return Piece(kind, i, spans[0].end, j, spans[1].end, share)


def _keys(first: str, second: str, i: int, j: int) -> Piece | None:
    """The outermost JSON value around the place that both write with other orders of its keys."""
    low = max(0, i - MAX_JSON_LOOK_BACK)
    openings = [found.start() for found in OPENING.finditer(first, low, i + 1)]
    for at in openings[:MAX_OPENINGS] if len(openings) <= MAX_OPENINGS else openings[-MAX_OPENINGS:]:
        later_at = at - i + j
        if later_at < 0:
            continue
        before, now = _json_at(first, at), _json_at(second, later_at)
        if before is None or now is None or min(before[1] - i, now[1] - j) <= 0:
            continue
        if before[0] == now[0]:
            return Piece("key_order", i, before[1], j, now[1], 1.0)
    return None


def _json_at(text: str, at: int) -> tuple[Any, int] | None:
    if text[at : at + 1] not in ("{", "["):
        return None
    try:
        return DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _shots(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    """Turns between the system messages and the last question that come in another order; a sliding window of a
    conversation keeps its order and is none."""
    ends = _shots_of(earlier.logged.messages), _shots_of(later.logged.messages)
    first, second = (list(_pairs(p.logged.messages[a:b])) for p, (a, b) in zip((earlier, later), ends, strict=True))
    common = Counter(first) & Counter(second)
    num_common = sum(common.values())
    if num_common < 2 or num_common < MIN_SHOTS_SHARED * max(len(first), len(second)):
        return None
    if [p for p in first if p in common] == [p for p in second if p in common]:
        return None
    region, later_region = _region(earlier, *ends[0]), _region(later, *ends[1])
    if region is None or later_region is None:
        return None
    (start, end), (later_start, later_end) = region, later_region
    if not (start <= i <= end and later_start <= j <= later_end):
        return None
    return Piece("example_order", i, end, j, later_end, num_common / max(len(first), len(second)))


def _shots_of(messages: Sequence[Message]) -> tuple[int, int]:
    begin = next((n for n, m in enumerate(messages) if m.role not in SYSTEM_ROLES), len(messages))
    last = max((n for n, m in enumerate(messages) if m.role == "user"), default=begin)
    return begin, max(begin, last)


def _pairs(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(a.content, b.content) for a, b in pairwise(messages) if (a.role, b.role) == ("user", "assistant")]


def _region(prompt: Prompt, begin: int, end: int) -> tuple[int, int] | None:
    spans = [s for s in prompt.spans if begin <= s.number < end]
    return (spans[0].start, spans[-1].end) if spans else None


def _blocks(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    """Paragraphs, else lines, of one message or text that are the same ones in another order."""
    spans = earlier.span_at(i), later.span_at(j)
    if spans[0] is None or spans[1] is None:
        return None
    for mark in ("\n\n", "\n"):
        found = _permuted(earlier.text, later.text, spans[0], spans[1], i, j, mark)
        if found is not None:
            end, later_end = found
            return Piece("example_order", i, end, j, later_end, 1.0)
    return None


def _permuted(
    first: str, second: str, span: Span, later_span: Span, i: int, j: int, mark: str
) -> tuple[int, int] | None:
    """Where the shortest run of blocks ends that holds the same blocks on both sides."""
    start = (
        max(span.start, first.rfind(mark, span.start, i) + len(mark)) if mark in first[span.start : i] else span.start
    )
    later_start = start - i + j
    if later_start < later_span.start:
        return None
    blocks = first[start : span.end].split(mark)[:MAX_BLOCKS]
    others = second[later_start : later_span.end].split(mark)[:MAX_BLOCKS]
    balance: Counter[str] = Counter()
    end, later_end, num_full, moved = start, later_start, 0, False
    for block, other in zip(blocks, others, strict=False):
        balance[block.strip()] += 1
        balance[other.strip()] -= 1
        end, later_end = end + len(block), later_end + len(other)
        num_full += bool(block.strip())
        moved = moved or block.strip() != other.strip()
        if num_full > 1 and not any(balance.values()):
            return (end, later_end) if moved and end > i and later_end > j else None
        end, later_end = end + len(mark), later_end + len(mark)
    return None
