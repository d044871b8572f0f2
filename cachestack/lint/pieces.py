"""What stands where two prompts part: a value that changes from request to request, or content.

Both prompts are equal up to the place. A piece is the changing value in each of them: characters `start` to `end`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from cachestack.lint.patterns import (
    COUNTER_CUE,
    KEY_KINDS,
    KEY_VALUE,
    LANGUAGES,
    LOGIN,
    NAME,
    NAME_CUE,
    NUMBER,
    PATTERNS,
    SPEECH_KEYS,
    TEMPLATE_DATE_CUE,
    VALUE_END,
    XML_VALUE,
)
from cachestack.lint.rendering import Prompt

LOOK_BACK, LOOK_AHEAD = 120, 120
ANCHOR = 40
"""Characters that must be equal behind a piece before it is taken for one, where its form alone says little."""
MAX_VALUE = 80
MAX_STEP = 10
"""A number without words that say so is a counter where it grows by no more than this."""
BLANK = re.compile(r"[\s\u00a0\u200b\u2009\u202f\ufeff]+")
SEPARATORS = re.compile(r"[\s\u00a0\u200b\u2009\u202f\ufeff\-–—―*=_#|:;,.·•>~+/\\\"'“”‘’«»]+")
WORD_CHAR = re.compile(r"[\w'’.-]")
KIND_OF_PATTERN = {"email": "user_name"}


@dataclass(frozen=True, slots=True)
class Piece:
    """The same place in the earlier prompt and in the later one. `share`: how much of it would be the same too, if it
    stood still (1 for an order that changes, 0 for a value)."""

    kind: str
    start: int
    end: int
    later_start: int
    later_end: int
    share: float = 0.0


def value_piece(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    """The value at characters `i` and `j`, by its form or by what stands before it; None for what has neither."""
    finders: tuple[Callable[[Prompt, Prompt, int, int], Piece | None], ...] = (
        _by_form,
        _known_user,
        _language,
        _name,
        _counter,
        _key_value,
        _separator,
    )
    for finder in finders:
        piece = finder(earlier, later, i, j)
        if piece is not None:
            return piece
    return None


def _by_form(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    for name, pattern in PATTERNS.items():
        first, second = _covering(pattern, earlier.text, i), _covering(pattern, later.text, j)
        if first is None or second is None or i - first[0] != j - second[0]:
            continue
        kind = KIND_OF_PATTERN.get(name, name)
        if kind in ("date", "time", "timestamp") and _is_of_template(earlier, first[0]):
            kind = "template_date"
        elif kind == "identifier":
            kind = _kind_of_key(earlier.text, first[0], ("counter",)) or kind
        return Piece(kind, first[0], first[1], second[0], second[1])
    return None


def _covering(pattern: re.Pattern[str], text: str, at: int) -> tuple[int, int] | None:
    """The match that holds the place, or ends or begins right there."""
    low = max(0, at - LOOK_BACK)
    while 0 < low < at and WORD_CHAR.match(text, low):
        low += 1
    for found in pattern.finditer(text, low, min(len(text), at + LOOK_AHEAD)):
        if found.start() <= at <= found.end() and found[0]:
            return found.span()
        if found.start() > at:
            break
    return None


def _is_of_template(prompt: Prompt, at: int) -> bool:
    """A date that the chat template wrote, not the application."""
    span = prompt.span_at(at)
    inside = span is not None and span.role != "text"
    return not inside and TEMPLATE_DATE_CUE.search(prompt.text, max(0, at - LOOK_BACK), at) is not None


def _known_user(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    start, later_start = _word_start(earlier.text, i), _word_start(later.text, j)
    ends = _user_end(earlier, start), _user_end(later, later_start)
    if ends == (None, None) or i - start != j - later_start:
        return None
    first = ends[0] or _name_end(earlier.text, start)
    second = ends[1] or _name_end(later.text, later_start)
    if first is None or second is None or first < i or second < j:
        return None
    return Piece("user_name", start, first, later_start, second)


def _user_end(prompt: Prompt, start: int) -> int | None:
    user = prompt.logged.user
    if not user:
        return None
    names = sorted({user, user.split("@")[0], *(w for w in re.split(r"[\s@._-]+", user) if len(w) > 2)}, key=len)
    for name in reversed(names):
        end = start + len(name)
        if prompt.text[start:end].casefold() == name.casefold() and not prompt.text[end : end + 1].isalnum():
            further = re.compile(r"(?:[ -][A-ZÀ-ÖØ-Þ][\w'’]+){1,3}").match(prompt.text, end)
            return further.end() if further else end
    return None


def _name_end(text: str, start: int) -> int | None:
    found = NAME.match(text, start)
    return found.end() if found else None


def _name(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    """A capitalised name after words that introduce one, or a login as the value of a key or of a tag."""
    start = _name_start(earlier.text, i)
    later_start = start - i + j
    cue = NAME_CUE.search(earlier.text, max(0, start - 40), start)
    mark = cue[0].rstrip("\"'`* ")[-1:] if cue is not None else ""
    forms = (NAME, LOGIN) if mark in ("=", ">") else (NAME,)
    first, second = (_whole_name(forms, text, at) for text, at in ((earlier.text, start), (later.text, later_start)))
    if cue is None or first is None or second is None or first.end() < i or second.end() < j:
        return None
    if mark in (":", "=", ">"):  # `User: How do I …` is speech: a name there ends its line or field
        ends = re.compile(r"[\"'`*]{0,2}\s*(?:\n|$|[.,;|<)\]}])")
        if not (ends.match(earlier.text, first.end()) and ends.match(later.text, second.end())):
            return None
    return Piece("user_name", start, first.end(), later_start, second.end())


def _whole_name(forms: tuple[re.Pattern[str], ...], text: str, at: int) -> re.Match[str] | None:
    return next((found for form in forms if (found := form.match(text, at))), None)


def _name_start(text: str, at: int) -> int:
    """Back over the words of a name that both begin with."""
    start = _word_start(text, at)
    while start > 1 and text[start - 1] == " ":
        before = _word_start(text, start - 1)
        if not NAME.fullmatch(text, before, start - 1) or NAME_CUE.search(text, max(0, start - 40), start):
            break
        start = before
    return start


def _language(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    first, second = _covering(LANGUAGES, earlier.text, i), _covering(LANGUAGES, later.text, j)
    if first is None or second is None or i - first[0] != j - second[0]:
        return None
    return Piece("language", first[0], first[1], second[0], second[1])


def _counter(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    first, second = _covering(NUMBER, earlier.text, i), _covering(NUMBER, later.text, j)
    if first is None or second is None or i - first[0] != j - second[0]:
        return None
    at = first[0]
    is_counter = COUNTER_CUE.search(earlier.text, max(0, at - 40), at) is not None
    whole = _key_value(earlier, later, i, j)
    if whole is not None and whole.kind != "counter":
        return whole
    kind = "counter" if is_counter or whole is not None else None
    if kind is None:
        before, now = (t[a:b] for t, (a, b) in ((earlier.text, first), (later.text, second)))
        kind = (
            "counter" if before.isdigit() and now.isdigit() and 0 < int(now) - int(before) <= MAX_STEP else "variable"
        )
    return Piece(kind, first[0], first[1], second[0], second[1])


def _key_value(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    """The value of `Key: value`, on one line, where the key tells what it is."""
    found = _keyed(earlier.text, i)
    kind = _kind_of_key(earlier.text, i)
    if found is None or kind is None:
        return None
    start = found.start("head")
    ends = [VALUE_END.search(text, at) for text, at in ((earlier.text, i), (later.text, j))]
    if ends[0] is None or ends[1] is None:
        return None
    first, second = ends[0].start(), ends[1].start()
    if max(first - start, second - (start - i + j)) > MAX_VALUE:
        return None
    return Piece(kind, start, first, start - i + j, second)


def _keyed(text: str, at: int) -> re.Match[str] | None:
    low = max(0, at - LOOK_BACK)
    return KEY_VALUE.search(text, low, at) or XML_VALUE.search(text, low, at)


def _kind_of_key(text: str, at: int, kinds: tuple[str, ...] = tuple(KEY_KINDS)) -> str | None:
    found = _keyed(text, at)
    if found is None or SPEECH_KEYS.match(found["key"].strip()):
        return None
    key = found["key"].strip()
    return next((kind for kind in kinds if KEY_KINDS[kind].search(key)), None)


def _separator(earlier: Prompt, later: Prompt, i: int, j: int) -> Piece | None:
    """White space, or marks between parts, that differ while the words around them are the same."""
    for kind, run in (("white_space", BLANK), ("separator", SEPARATORS)):
        start, later_start = _run_start(run, earlier.text, i), _run_start(run, later.text, j)
        if i - start != j - later_start:
            start, later_start = i, j
        end, later_end = _run_end(run, earlier.text, i), _run_end(run, later.text, j)
        after = earlier.text[end : end + ANCHOR // 2]
        same = after and later.text.startswith(after, later_end)
        if same and earlier.text[start:end] != later.text[later_start:later_end]:
            return Piece(kind, start, end, later_start, later_end)
    return None


def _run_start(run: re.Pattern[str], text: str, at: int) -> int:
    while at > 0 and run.match(text[at - 1]):
        at -= 1
    return at


def _run_end(run: re.Pattern[str], text: str, at: int) -> int:
    found = run.match(text, at)
    return found.end() if found else at


def _word_start(text: str, at: int) -> int:
    while at > 0 and WORD_CHAR.match(text[at - 1]):
        at -= 1
    return at
