"""Pairs to review as one HTML page: nothing is loaded from elsewhere, and nothing in it is taken for markup.

Boxes that are ticked become a file of pairs for `cachestack eval pairs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Any

from cachestack.evaluation.doubt import Doubt
from cachestack.requests import Message

_PIECES = re.compile(r"\s+|\w+|[^\w\s]")
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8886; padding: .45rem .6rem; text-align: left; vertical-align: top; }
td.texts { min-width: 24rem; overflow-wrap: anywhere; white-space: pre-wrap; }
td.texts div + div { margin-top: .3rem; }
mark { background: #f6c44d88; color: inherit; border-radius: 3px; }
.served { font-weight: 600; }
.small { font-size: .85em; opacity: .75; }
"""
# The pairs stand in the page as JSON; ticking one box of a row unticks the other.
_SCRIPT = """
const pairs = JSON.parse(document.getElementById("pairs").textContent);
const boxes = (row) => [...row.querySelectorAll("input")];
document.querySelectorAll("tbody tr").forEach((row) => boxes(row).forEach((box) =>
  box.addEventListener("change", () => {
    if (box.checked) boxes(row).filter((other) => other !== box).forEach((other) => { other.checked = false; });
  })));
document.getElementById("download").addEventListener("click", (event) => {
  const lines = [...document.querySelectorAll("tbody tr")].flatMap((row, number) => {
    const ticked = boxes(row).find((box) => box.checked);
    return ticked ? [JSON.stringify({...pairs[number], same_answer: ticked.value === "same"}) + "\\n"] : [];
  });
  event.target.href = URL.createObjectURL(new Blob(lines, {type: "application/x-ndjson"}));
});
"""


def review_page(title: str, facts: Iterable[tuple[str, str]], pairs: Sequence[Doubt]) -> str:
    """The page. `facts` are names and values, shown above the table."""
    shown = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    rows = "".join(_row(number, doubt) for number, doubt in enumerate(pairs, start=1))
    embedded = json.dumps([as_pair(doubt) for doubt in pairs]).replace("<", "\\u003c")
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src \
'unsafe-inline'">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<table>{shown}</table>
<h2>Pairs to review, the most doubtful first</h2>
<p>Would the answer to the first question serve the second? Tick a box where you know, then
<a id="download" href="#" download="reviewed.jsonl">download what is ticked</a> and run
<code>cachestack eval pairs reviewed.jsonl</code>. What is ticked is lost when the page is closed.</p>
<table>
<thead><tr><th>#</th><th>kept, then asked</th><th>decided</th><th>similarity</th><th>score</th><th>guard</th>\
<th>same answer</th><th>other answer</th></tr></thead>
<tbody>
{rows}</tbody>
</table>
<script type="application/json" id="pairs">{embedded}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""
    return page.encode("utf-8", "xmlcharrefreplace").decode("utf-8")


def marked(a: str, b: str) -> tuple[str, str]:
    """Both texts as HTML; what one has and the other has not is marked."""
    ours, theirs = _PIECES.findall(a), _PIECES.findall(b)
    one: list[str] = []
    other: list[str] = []
    folded = [piece.casefold() for piece in ours], [piece.casefold() for piece in theirs]
    for kind, start, end, start_b, end_b in SequenceMatcher(None, *folded, autojunk=False).get_opcodes():
        for pieces, out in ((ours[start:end], one), (theirs[start_b:end_b], other)):
            text = escape("".join(pieces))
            out.append(text if kind == "equal" or not text.strip() else f"<mark>{text}</mark>")
    return "".join(one), "".join(other)


def _row(number: int, doubt: Doubt) -> str:
    kept, asked = marked(doubt.a[-1].content, doubt.b[-1].content)
    fate = "served" if doubt.served else "missed"
    score = "" if doubt.score is None else f"{doubt.score:.3f}"
    guard = "" if doubt.guard is None else doubt.guard + (" (certain)" if doubt.certain else "")
    before = f"<div class='small'>after {len(doubt.b) - 1} earlier messages</div>" if len(doubt.b) > 1 else ""
    where = f"{doubt.place_a}, {doubt.place_b}" + (f" · {doubt.times} times" if doubt.times > 1 else "")
    boxes = "".join(
        f"<td><input type='checkbox' value='{value}' aria-label='{value} answer, pair {number}'></td>"
        for value in ("same", "other")
    )
    return (
        f"<tr><td>{number}</td><td class='texts'>{before}<div>{kept}</div><div>{asked}</div>"
        f"<div class='small'>{escape(where)}</div></td>"
        f"<td class='{fate}'>{fate}<div class='small'>{escape(doubt.decided_by)}</div></td>"
        f"<td>{doubt.similarity:.3f}</td><td>{score}</td><td>{escape(guard)}</td>{boxes}</tr>\n"
    )


def as_pair(doubt: Doubt) -> dict[str, Any]:
    """As `eval pairs` reads it, but for the judgement."""
    return {
        "id": doubt.place_b,
        "a": _content(doubt.a),
        "b": _content(doubt.b),
        "category": "reviewed",
        "source": "log",
    }


def _content(messages: tuple[Message, ...]) -> Any:
    """A question alone is text; a conversation a list."""
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].content
    return [{"role": message.role, "content": message.content} for message in messages]
