"""Answers that end before they are finished, without the engine having said so."""

from __future__ import annotations

import json
import re

from cachestack.semantic.admission.base import Finding
from cachestack.semantic.admission.reading import words_of

MAX_TAIL = 600
"""Characters at the end that are read for how it ends."""
MAX_JSON = 64 * 1024
MIN_PROSE_CHARS = 60
MIN_PROSE = 2
"""Finished sentences before it from which an unfinished last one is a cut."""

_FENCE = re.compile(r"^[ >]{0,8}(```+|~~~+)", re.MULTILINE)
_FINISHED = re.compile(
    r"[.!?\u2026:;)\]}\"'\u00bb\u201d\u2019`*_|>/=~%\u20ac$\u00a3\u00b0-]$|\w\.$|[^\x00-\u024f\u2000-\u20ff]$"
)
_SENTENCE = re.compile(r"(?<!\n\d)(?<!\n\d\d)[.!?\u2026][\"')\u00bb\u201d]?\s+(?=[\"'(\u00ab\u201c\w])")
_LIST = re.compile(r"^\s*(?:[-*\u2022+|#>]|\d{1,3}[.)]|[a-z][.)])\s?")
_NO_ITEM = re.compile(r"^(?:\d{1,2}[.)]|[-*\u2022+])$|[.!?;:\u00bb\"')] (?:[2-9]|1\d)[.)]$")
_DANGLING = words_of(
    "a an the of to and or with for from in on at by that which who whose because if when while than as into onto "
    "your our their its my his is are was were be been will would should could can may might must but so nor about "
    "between through during without within being having until unless under over above below before after against "
    "along among around behind beyond despite except like near since toward upon via versus per whether both either "
    "neither not very more most this these those each every such also has have had do does le la les un une des du "
    "de d' l' au aux et ou avec pour par dans sur sous chez que qui dont où car si quand lorsque mais donc ni votre "
    "vos notre nos leur leurs mon ma mes ton ta tes son sa ses ce cet cette ces est sont était sera être a ont "
    "avait très plus je tu il elle ils elles nous vous on i he she they we étant ayant au-delà jusqu' jusqu'à "
    "jusqu'au lorsqu' dès selon malgré contre après avant derrière devant parmi hors via qu' s' n' j' c' en vers "
    "entre sans depuis pendant afin ainsi puis comme"
)
_MAY_END = words_of(
    "under over above below before after around behind near since along like in on at by for from with about through "
    "within without off up out après avant derrière devant contre plus puis"
)
"""Of those, what a finished short answer may end with (`log in`, `what it is`)."""


UNSURE = frozenset({"open_item", "open_sentence"})
"""Ends that finished answers have too: evidence, no proof."""


def find_cut(answer: str) -> Finding | None:
    """A finding of kind `cut_off`."""
    text = answer.rstrip()
    if len(_FENCE.findall(text)) % 2:
        return Finding("cut_off", {"end": "open_code_fence"})
    begin = text.lstrip()[:1]
    if begin in ("{", "[") and _is_open_json(text.lstrip()):
        return Finding("cut_off", {"end": "open_json"})
    if text.endswith("```"):
        return None
    tail = text[-MAX_TAIL:]
    line = tail.rsplit("\n", 1)[-1].strip()
    if line.startswith("|") and _is_short_row(tail):
        return Finding("cut_off", {"end": "open_table"})
    end = _end_of(line, tail, is_whole=len(text) <= MAX_TAIL)
    return None if end is None else Finding("cut_off", {"end": end})


def _end_of(line: str, tail: str, *, is_whole: bool) -> str | None:
    if not line:
        return None
    words = line.split()
    last = words[-1].lower().replace("\u2019", "'")
    if line.endswith((",", " -", " \u2013", " \u2014", "(", "[", "{", "\u00ab", " &", "\u201c")):
        return "open_punctuation"
    if line.endswith(":"):
        return "announced"
    if (_NO_ITEM.search(line) and (len(words) > 1 or not is_whole or "\n" in tail.strip())) or (
        len(words) >= 2 and words[-1] in ('"', "\u00ab")
    ):
        return "open_item"
    is_listed = _LIST.match(line) is not None
    line = _LIST.sub("", line, count=1) if is_listed else line
    num_sentences = len(_SENTENCE.findall(tail))
    if (
        len(words) >= (2 if is_listed else 3 if num_sentences else 4)
        and last.strip("*_([\"'") in _DANGLING
        and not (
            last in _MAY_END and num_sentences == 0 and len(words) < 12 and not (is_listed and "\n" in tail.strip())
        )
    ):
        return "open_clause"
    if _FINISHED.search(line):
        return None
    if re.search(r"[\w\u00c0-\u024f]$", line) is None:
        return None
    starts = _SENTENCE.split(line)
    if is_listed and len(starts) == 1:
        return _unlike_items(tail, line)
    prose = len(_SENTENCE.findall(line)) if is_listed else num_sentences
    if prose >= MIN_PROSE and len(starts[-1].split()) >= 3:
        return "open_sentence"
    min_words = 3 if len(tail) < 80 or len(starts) == 1 else 1
    if prose == 1 and len(starts[-1].split()) >= min_words and (len(tail) >= MIN_PROSE_CHARS or len(starts) == 1):
        return "open_sentence"
    return None


def _is_short_row(tail: str) -> bool:
    """The last row of a table has fewer cells than the one before."""
    *_, before, last = ("", *(line.strip() for line in tail.split("\n")))
    return before.startswith("|") and last.count("|") < before.count("|")


def _unlike_items(tail: str, line: str) -> str | None:
    """The last item of a list ends otherwise than all those before it, which are finished sentences."""
    before = [one.strip() for one in tail.split("\n")[:-1] if _LIST.match(one.strip())]
    if len(before) >= 2 and all(one.endswith((".", "!", "?")) for one in before) and len(line.split()) >= 3:
        return "open_item"
    return None


def _is_open_json(text: str) -> bool:
    """Begins like JSON and ends with something still open. What is no JSON at all is not looked at."""
    if len(text) > MAX_JSON or re.match(r'\{\s*["}]|\[\s*[\[{"\d\]tfn-]', text) is None:
        return False
    try:
        json.loads(text)
        return False
    except RecursionError:
        return False
    except ValueError:
        return _num_open(text) > 0


def _num_open(text: str) -> int:
    depth, quoted, escaped = 0, False, False
    for c in text:
        if escaped:
            escaped = False
        elif quoted:
            escaped = c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "{[":
            depth += 1
        elif c in "}]":
            depth -= 1
    return depth + quoted
