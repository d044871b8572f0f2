"""The log of requests: what is in it, how large it gets, and who may write it."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat

import pytest

from cachestack.decisions import Layer, Outcome, Reason, Response, Step, Trace
from cachestack.observers import Ended
from cachestack.observing.evidence import evidence_of
from cachestack.observing.log_reader import LogReader
from cachestack.observing.request_log import NUM_FILES, RequestLog, log_files
from cachestack.requests import Message, Request, Usage
from cachestack.stack import CacheStack

SECRET = "my PIN is 4711"


def ended(number: int = 0, *, text: str = SECRET, tenant: str = "acme") -> Ended:
    trace = Trace(f"id-{number}", tenant, (Step(Layer.SEMANTIC, Outcome.HIT, Reason.EXACT),), 0.001)
    response = Response(f"answer to {text}", trace, Usage(5, 5, 3), hit_id="h")
    return Ended(Request((Message("user", text),), tenant=tenant), trace, response, None, 1_000_000.0 + number)


def all_text(folder) -> str:
    return "".join(path.read_text() for _, path in log_files(folder))


def test_a_line_has_the_trace_and_no_word(make_stack, tmp_path, engine):
    stack = make_stack()
    stack.observe(RequestLog(tmp_path / "log"))
    response = stack.chat(SECRET, system="Be brief.", tenant="acme")
    engine.error = RuntimeError(f"cannot say {SECRET}")
    with pytest.raises(RuntimeError):
        stack.chat("another thing", tenant="acme")
    made, failed = LogReader(tmp_path / "log").new()
    assert made["request_id"] == response.trace.request_id
    assert (made["tenant"], made["model"], made["outcome"], made["error"]) == ("acme", "fixed-1", "engine", None)
    assert (made["prompt_tokens"], made["cached_tokens"], made["completion_tokens"]) == (100, 40, 11)
    assert [s["layer"] for s in made["steps"]] == [s.layer.value for s in response.trace.steps]
    assert (failed["outcome"], failed["error"]) == ("failed", "RuntimeError")
    shown = all_text(tmp_path / "log")
    assert not any(word in shown for word in ("4711", "an answer", "Be brief", "another thing"))


def test_with_text_where_it_is_switched_on(make_stack, tmp_path):
    stack = make_stack()
    stack.observe(RequestLog(tmp_path / "log", with_text=True))
    stack.chat(SECRET)
    (line,) = LogReader(tmp_path / "log").new()
    assert (line["question"], line["answer"]) == (SECRET, "an answer")


def test_what_guards_found_in_a_text_is_left_out():
    detail = {
        "guard": "numbers",
        "certain": True,
        "evidence": {"cached": ["4711"], "asked": ["4712"]},
        "similarity": 0.9,
        "nan": float("nan"),
        "doubts": ["content"],
        "verifier": {"name": "local", "score": 0.1, "words": ["4711"], "why": "4711"},
        "error": "ValueError: 4711",
    }
    step = Step(Layer.SEMANTIC, Outcome.MISS, Reason.GUARD_REJECTED, 0.0, detail)
    assert evidence_of(step) == {
        "guard": "numbers",
        "certain": True,
        "similarity": 0.9,
        "nan": None,
        "doubts": ["content"],
        "verifier": {"name": "local", "score": 0.1},
    }
    assert evidence_of(Step(Layer.DECODE, Outcome.FAILED, Reason.ENGINE_ERROR, 0.0, detail))["error"] == "ValueError"


def test_it_is_a_ring(tmp_path):
    log = RequestLog(tmp_path, max_bytes=8_000)
    for number in range(200):
        log(ended(number))
    size = sum(path.stat().st_size for _, path in log_files(tmp_path))
    assert len(log_files(tmp_path)) == NUM_FILES
    assert 4_000 < size < 8_000 + NUM_FILES * 500
    ids = [line["request_id"] for line in LogReader(tmp_path).new()]
    assert ids == [f"id-{n}" for n in range(200 - len(ids), 200)], "the latest, in order"


def test_a_follower_misses_nothing_while_files_change(tmp_path):
    log, reader, ids = RequestLog(tmp_path, max_bytes=8_000), LogReader(tmp_path), []
    for number in range(60):
        log(ended(number))
        ids += [line["request_id"] for line in reader.new()]
    assert ids == [f"id-{n}" for n in range(60)]
    assert len(log_files(tmp_path)) > 1
    assert list(reader.new()) == []


def test_a_line_that_is_not_finished_waits_and_one_that_is_torn_is_skipped(tmp_path):
    RequestLog(tmp_path)(ended(1))
    ((_, path),) = log_files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:30])
    reader = LogReader(tmp_path)
    assert [line["request_id"] for line in reader.new()] == ["id-1"]
    path.write_bytes(whole + whole + whole[:30] + b"\n" + b'{"v": 99}\n' + whole)
    assert len(list(reader.new())) == 2
    assert reader.num_skipped == 2


def write(folder, name: str, barrier) -> None:
    log = RequestLog(folder, max_bytes=400_000)
    barrier.wait()
    for number in range(200):
        log(ended(number, tenant=name, text="x"))


def test_processes_write_whole_lines(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    processes = [context.Process(target=write, args=(tmp_path, name, barrier)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    reader = LogReader(tmp_path)
    lines = list(reader.new())
    assert reader.num_skipped == 0
    for name in "abc":
        assert [line["request_id"] for line in lines if line["tenant"] == name] == [f"id-{n}" for n in range(200)]
    assert len(log_files(tmp_path)) > 1


def test_a_file_that_went_is_not_written_any_more(tmp_path):
    log = RequestLog(tmp_path)
    log(ended(1))
    ((_, path),) = log_files(tmp_path)
    path.unlink()
    log(ended(2))
    assert [line["request_id"] for line in LogReader(tmp_path).new()] == ["id-2"]


def test_only_its_owner_reads_it(tmp_path):
    RequestLog(tmp_path / "log")(ended())
    ((_, path),) = log_files(tmp_path / "log")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "log").st_mode) == 0o700


def test_a_log_that_cannot_be_written_costs_no_request(make_stack, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    stack = make_stack()
    stack.observe(RequestLog(tmp_path / "file" / "log"))
    assert [stack.chat("Hello").text for _ in range(2)] == ["an answer"] * 2
    assert len(caplog.records) == 1


@pytest.mark.parametrize("options", [{}, {"request_log": True}, {"request_log_text": True}])
def test_it_is_off_unless_a_stack_is_built_with_it(tmp_path, options):
    with CacheStack.without_engine(encoder="none", home=tmp_path, **options) as stack:
        stack.wrap(tenant="acme", model="m")(answer)("Hello")
    lines = list(LogReader(tmp_path / "requests").new())
    assert len(lines) == len(options)
    assert ["question" in line for line in lines] == [key == "request_log_text" for key in options]
    assert all(json.dumps(line) for line in lines)


def answer(prompt: str) -> str:
    return "yes"
