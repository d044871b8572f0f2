"""Where two prompts of one family part, piece by piece, and what lies behind each piece that they share again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from cachestack.lint.orders import order_piece
from cachestack.lint.pieces import ANCHOR, Piece, value_piece
from cachestack.lint.rendering import Prompt, Span

MAX_PIECES = 64
LOOK_AHEAD = 300
MAX_ANCHORS = 60
MIN_SUFFIX = 64
NEAR = 8


LINE = re.compile(r"(?m)^[^\S\n]*(\S[^\n]*)")


@dataclass(frozen=True, slots=True)
class Parting:
    """A piece, and how many characters after it are equal again, up to the next piece or the end."""

    piece: Piece
    num_equal: int


def partings(earlier: Prompt, later: Prompt, fixed: Collection[str] = ()) -> tuple[Parting, ...]:
    """In order. Empty where one prompt continues the other, or where they part in content that ends what they share.

    `fixed`: lines that the application writes into most of its prompts, as `lines_of` gives them. However long the
    content is that stands in front of them, the two are compared again from there.
    """
    first, second = earlier.text, later.text
    i = j = common_length(first, 0, second, 0)
    found: list[Parting] = []
    while len(found) < MAX_PIECES and i < len(first) and j < len(second):
        piece = order_piece(earlier, later, i, j) or value_piece(earlier, later, i, j)
        if piece is not None and not _resumes(first, second, piece):
            piece = None if piece.kind in ("variable", "counter") else piece
        piece = piece or _rejoined(earlier, later, i, j, fixed)
        if piece is None or (piece.end <= i and piece.later_end <= j):
            break
        num_equal = common_length(first, piece.end, second, piece.later_end)
        found.append(Parting(piece, num_equal))
        i, j = piece.end + num_equal, piece.later_end + num_equal
    return tuple(found)


def common_length(first: str, i: int, second: str, j: int) -> int:
    """How many characters from there on are equal."""
    most = min(len(first) - i, len(second) - j)
    low, step = 0, 64
    while low < most:
        size = min(step, most - low)
        if first[i + low : i + low + size] != second[j + low : j + low + size]:
            break
        low, step = low + size, step * 2
    else:
        return most
    while size > 1:  # the first difference is within `size` characters from `low`
        half = size // 2
        if first[i + low : i + low + half] == second[j + low : j + low + half]:
            low, size = low + half, size - half
        else:
            size = half
    return low


def _resumes(first: str, second: str, piece: Piece) -> bool:
    """The same word or two follow on both sides."""
    after = first[piece.end : piece.end + NEAR]
    return bool(after) and second.startswith(after, piece.later_end)


def _rejoined(earlier: Prompt, later: Prompt, i: int, j: int, fixed: Collection[str]) -> Piece | None:
    """Text of any form, where the two go on alike soon after it, or to the end of the message or text it stands in, or
    from a line on that most prompts have."""
    span, later_span = earlier.span_at(i), later.span_at(j)
    if span is None or later_span is None or (span.role, span.number) != (later_span.role, later_span.number):
        return None
    first, second = earlier.text, later.text
    start = _gap_start(first, i, span)
    later_start = start - i + j
    ends = (
        _anchored(first, second, i, j, span, later_span)
        or _suffixed(first, second, i, j, span, later_span)
        or _at_fixed_line(first, second, i, j, span, later_span, fixed)
    )
    if ends is None:
        return None
    end, later_end = ends
    while end > i and later_end > j and first[end - 1].isspace() and first[end - 1] == second[later_end - 1]:
        end, later_end = end - 1, later_end - 1
    return Piece("variable", start, end, later_start, later_end)


def _gap_start(text: str, at: int, span: Span) -> int:
    while at > span.start and not text[at - 1].isspace():
        at -= 1
    return at


def _anchored(first: str, second: str, i: int, j: int, span: Span, later_span: Span) -> tuple[int, int] | None:
    num_tried = 0
    for at in range(i, min(i + LOOK_AHEAD, span.end - ANCHOR)):
        if at > i and (first[at - 1].isalnum() or first[at].isspace()):
            continue
        num_tried += 1
        if num_tried > MAX_ANCHORS:
            return None
        found = second.find(first[at : at + ANCHOR], j, min(j + LOOK_AHEAD + ANCHOR, later_span.end))
        if found >= 0:
            return at, found
    return None


def _suffixed(first: str, second: str, i: int, j: int, span: Span, later_span: Span) -> tuple[int, int] | None:
    rest, later_rest = first[i : span.end][::-1], second[j : later_span.end][::-1]
    same = common_length(rest, 0, later_rest, 0)
    if same < MIN_SUFFIX:
        return None
    return span.end - same, later_span.end - same


def _at_fixed_line(
    first: str, second: str, i: int, j: int, span: Span, later_span: Span, fixed: Collection[str]
) -> tuple[int, int] | None:
    if not fixed:
        return None
    for at, line in _lines(first, i, span.end):
        if line in fixed:
            found = second.find("\n" + first[at : at + len(line)], j, later_span.end)
            if found >= 0:
                return at, found + 1
    return None


def lines_of(text: str) -> set[str]:
    """The lines that are long enough to tell a text by."""
    return {line for _, line in _lines(text, 0, len(text))}


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    for found in LINE.finditer(text, start, end):
        line = found[1].rstrip()
        if len(line) >= ANCHOR:
            yield found.start(1), line
