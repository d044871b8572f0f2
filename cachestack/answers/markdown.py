"""An answer's text without Markdown: its code apart, its prose as lines, list items marked."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_SPACES = dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"), " ")
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]{1,400})`")
_LINK = re.compile(r"\[([^\[\]\n]{1,300})\]\(([^()\s]{1,500})\)")
_HEAD = re.compile(r"[ \t]*(?:#{1,6}[ \t]+|>[ \t]?)?")
_ITEM = re.compile(
    r"[ \t]*(?:(?P<bullet>[-*+•▪◦‣–])|\(?(?P<number>\d{1,3})[.)]"
    r"|(?:step|étape|etape)[ \t](?P<step>\d{1,3})[ \t]?[:.)-])[ \t]+",
    re.IGNORECASE,
)
_RULE = frozenset("-*_=|: \t")
_CHECKBOX = re.compile(r"\[[ xX]\] ")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of prose. `number`: of a numbered item; `is_item`: of a numbered or bulleted one."""

    text: str
    is_item: bool = False
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """`blocks`: fenced code, letter for letter. `inline`: code between backquotes, which the lines hold too."""

    lines: tuple[Line, ...]
    blocks: tuple[str, ...]
    inline: tuple[str, ...]


def take_apart(text: str) -> Parts:
    """Linear in the text's length. Canonically equal texts (NFC, NFD) give equal parts."""
    text = plain_spaces(unicodedata.normalize("NFC", text))
    prose, blocks = _fenced(text.replace("\r\n", "\n").replace("\r", "\n"))
    blocks, plain = tuple(b for b in blocks if _is_code(b)), [b for b in blocks if not _is_code(b)]
    prose = "\n".join((prose, *plain))
    inline = tuple(" ".join(m[1].split()) for m in _INLINE.finditer(prose))
    lines = tuple(line for raw in prose.split("\n") if (line := _line(raw)) is not None)
    return Parts(lines, blocks, inline)


def plain_spaces(text: str) -> str:
    """All kinds of space in a line as the plain one."""
    return text.translate(_SPACES)


def _fenced(text: str) -> tuple[str, tuple[str, ...]]:
    if "```" not in text and "~~~" not in text:
        return text, ()
    marks = [m.end() for m in _FENCE.finditer(text)]
    prose, blocks, at = [], [], 0
    for opened, closed in zip(marks[::2], [*marks[1::2], None], strict=False):
        start = text.find("\n", opened)
        prose.append(text[at : opened - 3])
        if start < 0:
            start = len(text)
        end = len(text) if closed is None else closed - 3
        blocks.append(text[start + 1 : max(end, start + 1)])
        at = len(text) if closed is None else closed
    prose.append(text[at:])
    return "\n".join(prose), tuple(block for block in blocks if block.strip())


def _is_code(block: str) -> bool:
    """Not times or names that somebody put in a box."""
    return (
        any(c in "{}()[];=<>$#\\|&_\"'/" for c in block)
        or " -" in block
        or (block.count(" ") < 3 > block.count("\n") and not any(c.isdigit() for c in block))
    )


def _line(raw: str) -> Line | None:
    if not raw.strip() or (len(raw) > 2 and _RULE.issuperset(raw)):
        return None
    raw = raw[_HEAD.match(raw).end() :]  # type: ignore[union-attr]
    item = _ITEM.match(raw)
    number = None
    if item is not None:
        raw = _CHECKBOX.sub("", raw[item.end() :], count=1)
        number = next((int(n) for n in (item["number"], item["step"]) if n), None)
    if raw.lstrip().startswith("|"):
        raw = ", ".join(cell.strip() for cell in raw.split("|") if cell.strip())
    text = _LINK.sub(r"\1 \2", raw).replace("**", "").replace("__", "").replace("`", "")
    text = _unstarred(text)
    text = " ".join(text.split())
    return Line(text, item is not None, number) if text else None


def _unstarred(text: str) -> str:
    """`*this*` and `_this_`, not `2 * 3` or `snake_case`."""
    if "*" in text:
        text = re.sub(r"(?<![\w*])\*(\S)", r"\1", text)
        text = re.sub(r"(?<=\S)\*(?![\w*])", "", text)
    if "_" in text:
        text = re.sub(r"(?<!\w)_(?=\w)", "", text)
        text = re.sub(r"(?<=[\w.!?])_(?!\w)", "", text)
    return text
