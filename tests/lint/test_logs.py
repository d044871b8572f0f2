"""Logs as clients and servers write them; what cannot be read says where."""

from __future__ import annotations

import gzip
import io
import json
import sys

import pytest

from cachestack.asking import build_request
from cachestack.errors import InputFileError, UsageError
from cachestack.lint import lint
from cachestack.lint.logs import as_logged, read_log
from cachestack.prompts import StructuredPrompt
from cachestack.requests import Message

HELLO = {"role": "user", "content": "Où est-ce ?"}


def write(tmp_path, text, name="log.jsonl"):
    file = tmp_path / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(file)


def one(row):
    return as_logged(row, "here")


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"messages": [HELLO]}, [("user", "Où est-ce ?")]),
        ({"messages": [HELLO], "system": "Be brief."}, [("system", "Be brief."), ("user", "Où est-ce ?")]),
        ({"prompt": "Hi", "system": "Be brief."}, [("system", "Be brief."), ("user", "Hi")]),
        ([HELLO], [("user", "Où est-ce ?")]),
        ({"messages": (HELLO,)}, [("user", "Où est-ce ?")]),
        ({"custom_id": "1", "body": {"messages": [HELLO], "model": "m"}}, [("user", "Où est-ce ?")]),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]},
         [("user", "a")]),
        ({"messages": [HELLO, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                       {"role": "tool", "tool_call_id": "1", "content": "x"}]},
         [("user", "Où est-ce ?"), ("assistant", '[{"id": "1"}]'), ("tool", "x")]),
        ({"system_instructions": "S", "user_query": {"text": "Q", "version": "1"}, "tenant": "t"},
         [("system", "S"), ("user", "Q")]),
        (StructuredPrompt("S", user_query="Q"), [("system", "S"), ("user", "Q")]),
        (StructuredPrompt("S"), [("system", "S")]),
        (build_request("Q", system="S"), [("system", "S"), ("user", "Q")]),
    ],
)  # fmt: skip
def test_forms(row, messages) -> None:
    assert one(row).messages == tuple(Message(role, content) for role, content in messages)
    assert one(row).text is None


def test_text_as_the_model_gets_it() -> None:
    assert one("Hi").text == one({"prompt": "Hi"}).text == "Hi"


def test_what_stands_beside_the_messages() -> None:
    row = one({"messages": [HELLO], "tenant": "acme", "user": {"name": "Zoé"}, "tools": [{"name": "pay"}]})
    assert (row.tenant, row.user, row.tools, row.source) == ("acme", "Zoé", ({"name": "pay"},), "here")
    assert one({"messages": [HELLO], "metadata": {"user": "ana"}}).user == "ana"


def test_files_by_suffix_and_by_their_first_line(tmp_path) -> None:
    lines = "\ufeff" + json.dumps({"messages": [HELLO]}) + "\n\n" + json.dumps("Hi \u2028 there", ensure_ascii=False)
    for name in ("log.jsonl", "log", "log.txt"):
        first, second = read_log(write(tmp_path, lines, name))
        assert (first.messages[0].content, second.text) == ("Où est-ce ?", "Hi \u2028 there")
        assert second.source.endswith("line 3")
    (text,) = read_log(write(tmp_path, "You are {kind}.\n\nBe brief.\n", "prompt.txt"))
    assert text.text == "You are {kind}.\n\nBe brief.\n"
    (forced,) = read_log(write(tmp_path, '"a"\n"b"', "p.jsonl"), format="text")
    assert forced.text == '"a"\n"b"'
    assert len(list(read_log(write(tmp_path, json.dumps([{"prompt": "a"}, "b"]), "log.json")))) == 2
    (stdin,) = read_log("-", stdin=io.BytesIO("été".encode()))
    assert (stdin.text, stdin.source) == ("été", "standard input")


@pytest.mark.parametrize("name", ["log.json", "log.log", "log"])
@pytest.mark.parametrize(
    ("document", "num_prompts"),
    [({"messages": [HELLO]}, 1), ([{"messages": [HELLO]}, {"prompt": "a"}], 2), ([HELLO, HELLO], 1), ([["x"]], None)],
)
def test_json_over_several_lines_is_known_by_itself(tmp_path, name, document, num_prompts) -> None:
    file = write(tmp_path, json.dumps(document, indent=2), name)
    if num_prompts is None:
        with pytest.raises(InputFileError, match="neither text nor an object"):
            list(read_log(file))
    else:
        prompts = list(read_log(file))
        assert len(prompts) == num_prompts
        assert prompts[0].messages[0] == Message("user", "Où est-ce ?")


def test_a_table_and_a_closed_standard_input_are_refused(tmp_path, monkeypatch) -> None:
    with pytest.raises(InputFileError, match=r"log\.csv is a table; write one JSON object a line"):
        list(read_log(write(tmp_path, "prompt\na", "log.csv")))
    assert [p.text for p in read_log(write(tmp_path, "prompt\na", "log.csv"), format="text")] == ["prompt\na"]
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputFileError, match="standard input is closed"):
        list(read_log("-"))


def test_parts_without_text_are_noted(run) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    parts = [{"type": "text", "text": "What is this?"}, image]
    report = run([{"messages": [{"role": "user", "content": parts}]}, {"messages": [HELLO]}])
    assert report.notes == ("images and other parts that are not text, in 1 prompts, count nothing",)
    assert run([{"messages": [{"role": "user", "content": parts[:1]}]}]).notes == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ('{"messages": []}', "line 1: messages must be a list that is not empty"),
        ('{"prompt": "a"}\n{"x": 1}', "line 2 has none of the keys that make a prompt: prompt, messages"),
        ('{"prompt": "a"}\n{', "line 2 is not JSON"),
        ("[1]", "line 1 is neither text nor an object"),
        ('{"messages": [{"content": "x"}]}', "each message needs a role"),
        ('{"messages": [{"role": "bot", "content": "x"}]}', "'bot' is not known; allowed: system"),
        ('{"prompt": 4}', "content must be text"),
        ('{"prompt": ["a", "b"]}', "holds 2 prompts; put each on a line of its own"),
        ('{"messages": [{"role": "user", "content": ' + "[" * 900 + "]" * 900 + "}]}", "list of parts, not list"),
        (gzip.compress(b'"a"'), "is compressed: gunzip -c"),
        ('{"user_query": 4}', "user_query must be text"),
        (b'"a"\n"\xff"', "line 2 is not UTF-8"),
        ("[" * 100_000, "nested too deeply"),
        ('{"prompt": ' + "9" * 5000 + "}", "can't be read"),
    ],
    ids=range(15),
)
def test_errors_name_file_and_line(tmp_path, text, says) -> None:
    with pytest.raises(InputFileError) as caught:
        list(read_log(write(tmp_path, text)))
    assert says in str(caught.value)
    assert "log.jsonl" in str(caught.value)


def test_no_prompt_and_odd_prompts(run) -> None:
    with pytest.raises(UsageError, match="at least one prompt"):
        lint([])
    report = run(
        [
            {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": ""}]},
            {"messages": [{"role": "assistant", "content": None}]},
            "\ud800 half of a pair",
            "",
        ]
    )
    assert report.num_prompts == 4
    assert report.findings == ()
