"""The page of pairs to review, read as a browser would."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cachestack.evaluation.doubt import Doubt
from cachestack.evaluation.pairs import read_pairs
from cachestack.evaluation.review_page import marked, review_page
from cachestack.requests import Message

EVIL = "</script><script>alert('1')</script><img src=x onerror=\"x\">&amp;<!--"
VOID = {"meta", "input", "img", "link", "br"}


class Page(HTMLParser):
    """Tags with their attributes, the texts of cells, and what stands in scripts. Unbalanced tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[str] = []
        self.scripts: list[str] = []
        self.marks: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif "tr" in self.open:
            self.rows[-1] += data
            if "mark" in self.open:
                self.marks.append(data)


def doubt(a: str, b: str, *earlier: Message, served: bool = True) -> Doubt:
    one, other = (*earlier, Message("user", a)), (*earlier, Message("user", b))
    return Doubt(0.01, one, other, served, "verifier:local:agree", 0.87, 0.51, 0.5, None, False, "log:1", "log:2", "t")


def test_texts_are_text_and_nothing_comes_from_elsewhere() -> None:
    page = Page(review_page(EVIL, [(EVIL, EVIL)], [doubt(EVIL, EVIL + "?"), doubt("\ud800 cat", "\ud800 dog")]))
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 2
    assert not {"img", "link", "iframe"} & set(tags)
    assert not any(name in ("src", "onerror", "style") for _, attributes in page.tags for name in attributes)
    assert [v for _, a in page.tags for n, v in a.items() if n == "href"] == ["#"]
    assert not re.search(r"https?:", "".join(page.scripts))
    assert EVIL in page.rows[0]
    [policy] = [a["content"] for tag, a in page.tags if tag == "meta" and "content" in a and "http-equiv" in a]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert json.loads(page.scripts[0])[0]["a"] == EVIL


def test_differences_are_marked_and_each_row_has_two_boxes() -> None:
    page = Page(review_page("t", [], [doubt("Convert 100 USD", "convert 250 USD please")]))
    assert page.marks == ["100", "250", " please"]
    boxes = [attributes for tag, attributes in page.tags if tag == "input"]
    assert [(box["type"], box["value"]) for box in boxes] == [("checkbox", "same"), ("checkbox", "other")]
    assert "0.870" in page.rows[-1]
    assert "0.510" in page.rows[-1]
    assert "verifier:local:agree" in page.rows[-1]


def test_what_is_downloaded_can_be_judged(tmp_path: Path) -> None:
    """The script adds `same_answer` to the pairs that stand in the page; `eval pairs` reads the result."""
    system = Message("system", "Be kind.")
    page = Page(review_page("t", [], [doubt("a cat", "the cat"), doubt("a cat", "a dog", system)]))
    lines = [json.dumps(row | {"same_answer": True}) for row in json.loads(page.scripts[0])]
    (tmp_path / "reviewed.jsonl").write_text("\n".join(lines))
    first, second = read_pairs(tmp_path / "reviewed.jsonl")
    assert [m.content for m in (*first.a, *first.b)] == ["a cat", "the cat"]
    assert second.b == (system, Message("user", "a dog"))


@given(st.text(max_size=60), st.text(max_size=60))
def test_marking_changes_no_text(a: str, b: str) -> None:
    for text, html in zip((a, b), marked(a, b), strict=True):
        reader = Page(f"<table><tr><td>{html}</td></tr></table>")
        assert "".join(reader.rows) == text.replace("\r\n", "\n").replace("\r", "\n") or "\r" in text or "\0" in text
