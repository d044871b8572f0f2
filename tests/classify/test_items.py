"""Reading items and writing results: formats, encodings, and errors that name file and line."""

from __future__ import annotations

import csv
import io
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachestack.errors import InputFileError
from cachestack.items import FIELDS, ResultFile, ResultRow, output_format, read_items, read_text

TEXTS = ("où est ma carte ?", 'a "quoted", text', "two\nlines", "")


def write(tmp_path, name, content, encoding="utf-8"):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return str(file)


def csv_of(texts, delimiter=","):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(["id", "text"])
    writer.writerows([i, text] for i, text in enumerate(texts))
    return out.getvalue()


def jsonl_of(texts):
    return "".join(json.dumps({"id": i, "text": t}, ensure_ascii=i % 2 == 0) + "\n" for i, t in enumerate(texts))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize(
    ("name", "make"), [("i.csv", csv_of), ("i.jsonl", jsonl_of), ("i", csv_of), ("i.txt", jsonl_of)]
)
def test_formats_and_byte_order_marks(tmp_path, encoding, name, make):
    file = write(tmp_path, name, make(TEXTS), encoding)
    assert read_items(file, column="text") == TEXTS
    assert read_items(file, column="text", limit=2) == TEXTS[:2]


@pytest.mark.parametrize("make", [csv_of, jsonl_of])
def test_standard_input_is_told_by_its_first_character(make):
    assert read_items("-", column="text", stdin=io.BytesIO(make(TEXTS).encode())) == TEXTS


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters(tmp_path, delimiter):
    assert read_items(write(tmp_path, "i.csv", csv_of(TEXTS, delimiter)), column="text") == TEXTS


def test_format_option_beats_the_suffix(tmp_path):
    assert read_items(write(tmp_path, "i.csv", jsonl_of(TEXTS)), column="text", format="jsonl") == TEXTS


def test_values_that_are_not_text_keep_their_place(tmp_path):
    file = write(tmp_path, "i.jsonl", '{"text": null}\n{"text": 12}\n\n{"text": true}\n')
    assert read_items(file, column="text") == ("", "12", "true")
    assert read_items(write(tmp_path, "i.csv", "id,text\n1\n2,b\n\n3,\n"), column="text") == ("", "b", "")


def test_unicode_line_separators_are_part_of_a_text(tmp_path):
    texts = ("a\u2028b", "c\x85d")
    file = write(tmp_path, "i.jsonl", "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts))
    assert read_items(file, column="text") == texts


def test_a_header_alone_is_no_items(tmp_path):
    assert read_items(write(tmp_path, "i.csv", "id,text\n"), column="text") == ()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("i.csv", "", "is empty"),
        ("i.jsonl", " \n\n", "is empty"),
        ("i.csv", "id,body\n1,a\n", "no column 'text'; its columns: id, body"),
        ("i.csv", "text,text\n1,a\n", "2 columns 'text'"),
        ("i.csv", "text\nhello, world\n", "line 2 has 2 cells where the header has 1"),
        ("i.csv", 'text\n"open\n', "line 2 is not CSV"),
        ("i.jsonl", '{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ("i.jsonl", '{"text": "a"}\n"b"\n', "line 2 is not a JSON object"),
        ("i.jsonl", '{"text": "a"}\n{"body": "b", "id": 1}\n', "line 2 has no key 'text'; its keys: body, id"),
        ("i.jsonl", '{"text": ["a"]}\n', "line 1: the value of 'text' is not text"),
        ("i.jsonl", '{"text": "a"}\n' + "[" * 100_000 + "\n", "line 2"),
        ("i.jsonl", '{"text": "a"}\n{"text": ' + "1" * 5000 + "}\n", "line 2 can't be read"),
        ("i.csv", b"text\ncaf\xe9\n", "line 2 is not UTF-8"),
        ("i.csv", "text\na\n".encode("utf-16"), "line 1 is not UTF-8"),
    ],
)
def test_errors_name_file_line_and_what_there_is(tmp_path, name, content, says):
    file = write(tmp_path, name, content)
    with pytest.raises(InputFileError) as error:
        read_items(file, column="text")
    assert says in str(error.value)
    assert file in str(error.value)


def test_one_long_cell_does_not_cost_the_file(tmp_path):
    before = csv.field_size_limit()
    file = write(tmp_path, "i.csv", "text\n" + "word " * 40_000 + "\nshort\n")
    assert [len(text) for text in read_items(file, column="text")] == [200_000, 5]
    assert csv.field_size_limit() == before


def test_standard_input_that_is_closed(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputFileError, match="standard input is closed"):
        read_items("-", column="text")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputFileError, match="does not exist"):
        read_items(str(tmp_path / "none.csv"), column="text")
    with pytest.raises(InputFileError, match="cannot be read"):
        read_items(str(tmp_path), column="text")


def test_read_text(tmp_path):
    assert read_text(write(tmp_path, "p", "Où ?\nb\n", "utf-8-sig"), what="a prompt") == "Où ?\nb"
    with pytest.raises(InputFileError, match="is empty; it should hold a prompt"):
        read_text(write(tmp_path, "p", "\n"), what="a prompt")


def test_output_format():
    assert [output_format(p) for p in ("a.csv", "b.JSONL", "-")] == ["csv", "jsonl", "csv"]
    for path in ("a.xlsx", "a", "a.tsv"):
        with pytest.raises(InputFileError, match=r"\.csv or \.jsonl"):
            output_format(path)


def rows_of(texts, start=0):
    return [
        ResultRow(
            i,
            t,
            "card" if t else None,
            0.5 if t else None,
            0.1 if t else None,
            error=None if t else "the text is empty",
        )
        for i, t in enumerate(texts, start)
    ]


def read_back(path):
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as stream:
            return [(r["text"], r["label"] or None, r["error"] or None) for r in csv.DictReader(stream)]
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines[-1] == ""
    return [(r["text"], r["label"], r["error"]) for r in map(json.loads, lines[:-1])]


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_results_are_written_whole_and_nothing_else_is_left(tmp_path, name):
    out = tmp_path / name
    with ResultFile(str(out)) as results:
        results.write(rows_of(TEXTS[:2]))
        assert not out.exists(), "written aside first"
        results.write(rows_of(TEXTS[2:], 2))
    expected = [(t, "card" if t else None, None if t else "the text is empty") for t in TEXTS]
    assert read_back(out) == expected
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_an_interrupted_run_leaves_the_rows_it_had(tmp_path, name):
    out = tmp_path / name

    def interrupted():
        with ResultFile(str(out)) as results:
            results.write(rows_of(TEXTS[:2]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [text for text, _, _ in read_back(out)] == list(TEXTS[:2])
    assert os.listdir(tmp_path) == [name]


def test_a_run_that_fails_at_once_leaves_the_old_file(tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("old")
    with pytest.raises(ValueError, match="boom"), ResultFile(str(out)):
        raise ValueError("boom")
    assert out.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_a_full_disk_keeps_the_rows_that_fitted_and_no_half_row(tmp_path, name):
    resource = pytest.importorskip("resource")
    path = tmp_path / name
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        with ResultFile(str(path)) as results:
            results.write(rows_of(["a", "b"]))
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # a write beyond this is cut short, then refused
            results.write(rows_of(["word " * 20] * 100, start=2))

    try:
        with pytest.raises(InputFileError, match="cannot be written"):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [text for text, _, _ in read_back(path)] == ["a", "b"]
    assert os.listdir(tmp_path) == [name]


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(InputFileError, match="cannot be written"), ResultFile(str(tmp_path / "no" / "out.csv")):
        pass
    (tmp_path / "f.csv").mkdir()
    with pytest.raises(InputFileError, match="is a folder"), ResultFile(str(tmp_path / "f.csv")):
        pass


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=8), max_size=5)
)
@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_any_text_comes_back(tmp_path, texts, name):
    out = tmp_path / name
    with ResultFile(str(out)) as results:
        results.write(rows_of(texts))
    assert [text for text, _, _ in read_back(out)] == texts
    assert len(FIELDS) == 7


def test_a_lone_surrogate_is_written_as_its_escape(tmp_path):
    out = tmp_path / "out.jsonl"
    with ResultFile(str(out)) as results:
        results.write(rows_of(["a\ud83d"]))
    assert read_back(out)[0][0] == "a\ud83d"
