"""Request logs: what a row may hold, which format a file has, and that a bad line costs itself only."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cachestack.errors import InputFileError
from cachestack.evaluation.log_file import MAX_NAMED, BadLines, read_requests
from cachestack.evaluation.log_rows import LoggedRequest, request_of
from cachestack.requests import Message, Sampling, Usage


def read(path: Path, **options: Any) -> tuple[list[LoggedRequest], BadLines]:
    bad = BadLines()
    return list(read_requests(str(path), bad, **options)), bad


def questions(found: list[LoggedRequest]) -> list[str]:
    return [logged.request.question for logged in found]


@pytest.mark.parametrize(
    "row",
    [
        "a cat",
        {"text": "a cat"},
        {"prompt": "a cat"},
        {"messages": [{"role": "user", "content": "a cat"}]},
        {"body": {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a cat"}]}]}},
        [{"role": "user", "content": "a cat"}],
    ],
)
def test_a_question_in_all_its_forms(row: Any) -> None:
    assert request_of(row, "here:1").request.messages == (Message("user", "a cat"),)


def test_what_decides_a_contract_is_taken_from_a_body() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "a cat"}],
        "temperature": 0.2,
        "top_p": 0.9,
        "max_completion_tokens": 20,
        "max_tokens": 30,
        "stop": "END",
        "seed": 7,
        "n": 2,
        "tools": [{"type": "function"}],
        "response_format": {"type": "json_object"},
        "user": "u1",
        "stream": True,
    }
    request = request_of({"custom_id": "1", "tenant": "acme", "body": body}, "here:1").request
    assert request.sampling == Sampling(0.2, 0.9, 7, ("END",), 20, 2)
    assert (request.tenant, request.user, request.model) == ("acme", "u1", "m")
    assert request.tools == ({"type": "function"},)
    assert request.response_format == {"type": "json_object"}
    assert request.system == ("Be kind.",)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (1704103200, 1704103200),
        (1704103200000, 1704103200),
        ("1704103200.5", 1704103200.5),
        ("2024-01-01T10:00:00Z", 1704103200),
        ("2024-01-01 10:00:00", 1704103200),
        ("2024-01-01T12:00:00+02:00", 1704103200),
        (None, None),
        ("", None),
    ],
)
def test_times(time: Any, seconds: float | None) -> None:
    assert request_of({"text": "a cat", "time": time}, "here:1").time_s == seconds


def test_tokens_as_the_log_counted_them_or_by_characters() -> None:
    counted = request_of({"text": "a cat", "response": {"body": {"usage": USAGE}}}, "here:1")
    assert (counted.usage, counted.is_estimate) == (Usage(10, 0, 5), False)
    guessed = request_of({"text": "x" * 41}, "here:1")
    assert (guessed.usage, guessed.is_estimate) == (Usage(11), True)


USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"text": " "}, "empty"),
        ({"other": "x"}, "none of the keys"),
        ({"text": "a", "time": "yesterday"}, "'yesterday' is no time"),
        ({"text": "a", "time": float("inf")}, "is no time"),
        ({"text": "a", "temperature": "hot"}, "temperature must be a number"),
        ({"text": "a", "n": 1.5}, "n must be a whole number"),
        ({"text": "a", "stop": 3}, "stop"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "'robot' is not known"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only texts are compared"),
        (7, "neither text nor an object"),
    ],
)
def test_a_row_that_is_no_request_names_its_place(row: Any, says: str) -> None:
    with pytest.raises(InputFileError, match="here:1") as caught:
        request_of(row, "here:1")
    assert says in str(caught.value)


def test_bad_lines_are_named_and_the_others_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf"
        + json.dumps({"text": "one\u2028line"}, ensure_ascii=False).encode()
        + b'\n\n{broken\n\xff\xfe\n{"x": 1}\n'
        + b"[" * 100_000
        + b'\n{"text": "four"}'
    )
    found, bad = read(path)
    assert questions(found) == ["one\u2028line", "four"]
    assert [logged.place for logged in found] == [f"{path}:1", f"{path}:7"]
    assert bad.num_lines == 4
    for number, problem in zip((3, 4, 5, 6), bad.named, strict=True):
        assert problem.startswith(f"{path}:{number}")


def test_of_many_bad_lines_the_first_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("{\n" * 1000)
    found, bad = read(path)
    assert (found, bad.num_lines, len(bad.named)) == ([], 1000, MAX_NAMED)


def test_a_table_with_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('time;text;tenant;n\n1704103200;"a ""cat"";\nand a dog";acme;\n1;b\n2;c;acme;1;more\n3;d;;1\n')
    found, bad = read(path)
    assert questions(found) == ['a "cat";\nand a dog', "b", "d"]
    assert [logged.request.tenant for logged in found] == ["acme", "default", "default"]
    assert found[0].time_s == 1704103200
    assert bad.num_lines == 1
    assert "5 cells where the header has 4" in bad.named[0]


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("question,answer\nx,y\n")
    with pytest.raises(InputFileError, match="question, answer"):
        read(path)
    assert questions(read(path, column="question")[0]) == ["x"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"text": "a cat"}\n', ["a cat"]),
        ("tenant,text\nacme,a cat\n", ["a cat"]),
        ("a cat, and text\n\na dog\r\n", ["a cat, and text", "a dog"]),
    ],
)
def test_the_first_line_tells_the_format_of_standard_input(content: str, expected: list[str]) -> None:
    stdin = io.BytesIO(content.encode())
    assert questions(list(read_requests("-", BadLines(), stdin=stdin))) == expected


@pytest.mark.parametrize(("content", "says"), [(b"", "no requests"), (b"\x1f\x8b\x08", "compressed")])
def test_a_file_that_is_no_log(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(InputFileError, match=says):
        read(tmp_path / "log")
    with pytest.raises(InputFileError, match="does not exist"):
        read(tmp_path / "none")


def test_a_log_is_not_read_ahead(tmp_path: Path) -> None:
    """A line is parsed when it is asked for: a log of any length fits."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"text": "a cat"}\n' + "{broken\n" * 1000)
    bad = BadLines()
    requests = read_requests(str(path), bad)
    assert next(requests).request.question == "a cat"
    assert bad.num_lines == 0
