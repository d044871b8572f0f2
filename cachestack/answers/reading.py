"""An answer, read once: its words in one form, its sentences and items, its code, its language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from cachestack.answers.digits import plain_digits
from cachestack.answers.frames import is_closer, without_opener
from cachestack.answers.markdown import Line, Parts, take_apart
from cachestack.semantic.language import identify
from cachestack.semantic.text import Text, analyse
from cachestack.semantic.words import Role, fold

MAX_UNIT_CHARS = 400
"""A longer run without a full stop is cut at a space: what is done with one sentence may cost its length squared."""
MAX_CLOSERS = 3
_END = re.compile(r"[.!?…]+[\"'»”’)\]]*(?=\s)|[;:](?=\s)")
_ABBREVIATED = re.compile(
    r"(?:^|[\s(])(?:[A-Za-zÀ-ÿ]|dr|mr|mrs|ms|prof|st|no|nr|vs|etc|approx|e\.g|i\.e|cf|art|av|bd|mme|mlle|env|ex|p\.ex|min|max)\.$",
    re.IGNORECASE,
)
_EDGES = " \t.,;:!?…\"'«»“”‘’()[]{}*_-–—"
_KEPT_CASE = re.compile(r"https?://\S+|\b(?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w+\b")
_BYTES = re.compile(r"(?<![\d.,])(\d{1,6}(?:[.,]\d{1,3})?) ?([kKMG])(?:B|o)/s(?!\w)")
_YES_NO = re.compile(
    r"(?:yes|no|oui|non|si)[ ]?(?:[,;:!–—-][ ]?|\.[ ]?$|\.[ ]|$)"
    r"|(?:it|they|you|we) (?:is|are|do|does|can|should|will|must)"
    r"(?: not|n't)? ?(?:[.:;!]|$)[ ]?",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[^\W\d_][\w /'’-]{0,38} ?[:=] ?(?=\S)")


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence or an item of a list. `raw`: as it stands there; `text`: in one form."""

    raw: str
    text: str
    is_item: bool
    number: int | None


class Answer:
    """Reads `raw` step by step: each property is computed when first asked."""

    def __init__(self, raw: str, language: str | None = None) -> None:
        self.raw = raw
        self._said_language = language

    @cached_property
    def parts(self) -> Parts:
        return take_apart(self.raw)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Without the frames around the answer."""
        lines = list(self.parts.lines)
        while lines and not lines[0].is_item:
            first = without_opener(lines[0].text)
            bare = first == lines[0].text and without_opener(f"{first} x") == "x"
            if not (bare and (len(lines) > 1 or self.parts.blocks)):
                lines[0] = Line(first)
                break
            del lines[0]
        while len(lines) > 1 and is_closer(lines[-1].text):
            del lines[-1]
        if lines:
            lines[-1] = _without_closers(lines[-1])
        return tuple(lines)

    @cached_property
    def prose(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @cached_property
    def normal(self) -> str:
        """What two spellings of one answer have in common: folded, without Markdown, frames and outer punctuation."""
        lines = (folded(line.text) for line in self.lines)
        return " ".join(line for line in lines if line)

    @cached_property
    def language(self) -> str | None:
        return self._said_language or identify(self.prose)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Sentences and items, without a yes or no at the start."""
        found: list[Unit] = []
        for line in self.lines:
            for number, raw in enumerate(sentences(line.text)):
                if not found and (first := _YES_NO.match(raw.replace("’", "'"))):
                    raw = raw[first.end() :]
                if (found or number) and is_closer(raw):
                    continue
                leads = number == 0
                if text := folded(raw):
                    found.append(Unit(raw, text, line.is_item and leads, line.number if leads else None))
        return tuple(found)

    @property
    def num_words(self) -> int:
        return self.normal.count(" ") + 1 if self.normal else 0


def _without_closers(line: Line) -> Line:
    """Politeness at the end of a line taken off, where something else is left."""
    text = line.text
    for _ in range(MAX_CLOSERS):
        ends = [end.end() for end in _END.finditer(text, max(0, len(text) - MAX_UNIT_CHARS))]
        last = max((end for end in ends if end < len(text.rstrip())), default=0)
        if not last or not is_closer(text[last:]):
            break
        text = text[:last].rstrip()
    return line if text == line.text else Line(text, line.is_item, line.number)


def folded(text: str) -> str:
    """`words.fold` without outer punctuation; addresses and codes of mixed case keep theirs."""
    kept = _KEPT_CASE.findall(text) if any(c.isupper() for c in text) and any(c in "0123456789:" for c in text) else []
    done = fold(text)
    for word in kept:
        done = done.replace(fold(word), word)
    return done.strip(_EDGES)


def sentences(text: str) -> list[str]:
    """Linear in the length. Abbreviations do not end a sentence; what has no end is cut."""
    found, start = [], 0
    for end in _END.finditer(text):
        if end[0] == "." and _ABBREVIATED.search(text[max(start, end.end() - 8) : end.end()]):
            continue
        found.append(text[start : end.end()])
        start = end.end()
    found.append(text[start:])
    return [cut for one in found if one.strip() for cut in _cut(one.strip())]


def _cut(text: str) -> list[str]:
    done = []
    while len(text) > MAX_UNIT_CHARS:
        at = text.rfind(" ", 1, MAX_UNIT_CHARS)
        at = MAX_UNIT_CHARS if at < 0 else at
        done.append(text[:at])
        text = text[at:].lstrip()
    return [*done, text] if text else done


def without_label(text: str) -> str:
    """`category: billing` → `billing`, where a few words are left."""
    found = _LABEL.match(text)
    if found and (
        found[0].count(" ") > 3
        or any(t.role is Role.NUMBER for t in read(found[0], None).tokens + read(found[0], "fr").tokens)
    ):
        return text
    rest = text[found.end() :] if found else text
    return rest.strip(_EDGES) if 0 < rest.count(" ") + 1 <= 4 and rest.strip(_EDGES) else text


@lru_cache(maxsize=2048)
def read(text: str, language: str | None) -> Text:
    """A sentence as the guards read it, its numbers in one form."""
    if "B/s" in text or "o/s" in text:
        text = _BYTES.sub(lambda m: f"{float(m[1].replace(',', '.')) * 8:g} {m[2]}bps", text)  # before case is lost
    return analyse(plain_digits(fold(text), language), language if language == "fr" else "en")


def read_all(units: Sequence[Unit], language: str | None) -> list[Text]:
    return [read(unit.raw, language) for unit in units]
