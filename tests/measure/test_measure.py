"""`measure`: counts that can be checked by hand, a verdict that follows from the times, and the command."""

from __future__ import annotations

import json

import pytest

from cachestack.cli.app import main
from cachestack.cli.measure import _print
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.scoring import LabelScorer
from cachestack.errors import ContextTooLong, LabelError, UsageError
from cachestack.measure import Range, Timing, _judge, measure

SYSTEM = "You are the help desk of a bank. Name the team that should take the customer's message. " * 8
TEXTS = ("where is my card", "été", "a transfer of 12 EUR has not arrived at all", "")


@pytest.fixture(scope="module")
def report(local_engine):
    return measure(local_engine, SYSTEM, TEXTS, template="Ticket: {text}", labels=["card", "card arrival", "transfer"])


def test_counts_are_those_of_the_prompts(report, local_engine):
    scorer = LabelScorer(local_engine, ["a"], prompt=SYSTEM, template="Ticket: {text}")
    lengths = [len(scorer.tokenise(text)) for text in TEXTS[:3]]
    assert (report.num_items, report.num_errors, report.num_unclean) == (4, 1, 0)
    assert report.prompt_tokens == Range(min(lengths), sorted(lengths)[1], max(lengths))
    assert report.static_share.max == pytest.approx(report.prefix_tokens / min(lengths))
    assert report.static_share.min == pytest.approx(report.prefix_tokens / max(lengths))
    assert report.prefix_tokens == len(scorer.stable_tokens([scorer.tokenise(text) for text in TEXTS[:3]]))


def test_collisions_name_the_labels(report, local_engine):
    assert report.collisions == (("card", "card arrival"),)


def test_the_times_of_all_items_follow_from_those_of_one(report):
    timing = report.timing
    assert timing is not None
    assert min(timing.whole_ms, timing.packed_ms, timing.prefix_ms) > 0
    assert timing.whole_s == pytest.approx(3 * timing.whole_ms / 1000)
    assert timing.kept_s == pytest.approx((timing.prefix_ms + 3 * timing.packed_ms) / 1000)
    assert timing.speedup == pytest.approx(timing.whole_s / timing.kept_s)
    assert (report.verdict, report.reason) == _judge(timing, None, report.prefix_tokens, 3, 0)


def test_json(report):
    document = report.to_json()
    assert json.loads(json.dumps(document)) == document
    assert document["token_clean"] is True
    assert document["label_collisions"] == [["card", "card arrival"]]
    assert set(document["static_share"]) == {"min", "median", "max"}


def times_of(whole_ms, packed_ms, prefix_ms, num_items):
    whole_s, kept_s = whole_ms * num_items / 1000, (prefix_ms + packed_ms * num_items) / 1000
    return Timing(whole_ms, packed_ms, prefix_ms, whole_s, kept_s)


@pytest.mark.parametrize(
    ("times", "num_items", "verdict", "says"),
    [
        ((300, 40, 250), 1000, "worth it", "7.5 times"),
        ((300, 150, 0), 10, "worth it", "2.0 times"),
        ((300, 220, 100), 100, "little", "1.4 times"),
        ((300, 290, 10), 100, "no", "only 20 tokens long"),
        ((300, 40, 290), 1, "no", "would be used 1 time"),
    ],
)
def test_the_verdict_follows_from_the_times(times, num_items, verdict, says):
    whole_ms, packed_ms, prefix_ms = times
    given, reason = _judge(times_of(whole_ms, packed_ms, prefix_ms, num_items), None, 20, num_items, 0)
    assert given == verdict
    assert says in reason


def test_verdicts_without_times():
    assert _judge(None, "sliding window", 100, 10, 0) == ("no", "this model's cache cannot be kept: sliding window")
    assert _judge(None, None, 0, 10, 10)[0] == "no"


def test_items_that_stay_whole_are_said(local_engine):
    assert "; 3 items do not begin" in _judge(times_of(300, 40, 250, 10), None, 100, 10, 3)[1]


def test_wrong_calls(local_engine):
    with pytest.raises(UsageError, match="no item to measure: the text is empty"):
        measure(local_engine, SYSTEM, ["", " "])
    with pytest.raises(UsageError, match="no texts were given"):
        measure(local_engine, SYSTEM, [])
    with pytest.raises(UsageError, match=r"\{text\}"):
        measure(local_engine, SYSTEM, ["a"], template="Ticket")
    with pytest.raises(LabelError, match="label 1 of 1 is empty"):
        measure(local_engine, SYSTEM, ["a"], labels=[""])


def test_command(tmp_path, capsys, llm_path):
    (tmp_path / "prompt.txt").write_text("Name the team.")
    (tmp_path / "items.csv").write_text("id,body\n1,where is my card\n2,a transfer\n3,close my account\n")
    arguments = [
        "measure", "--prompt", str(tmp_path / "prompt.txt"), "--items", str(tmp_path / "items.csv"),
        "--column", "body", "--labels", "card,transfer", "--model", str(llm_path), "--json",
    ]  # fmt: skip
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["items"] == 3
    assert document["label_collisions"] == []
    assert document["verdict"] in ("worth it", "little", "no")
    assert document["timing"]["speedup"] > 0


def test_command_names_the_columns_there_are(tmp_path, capsys):
    (tmp_path / "prompt.txt").write_text("Name the team.")
    (tmp_path / "items.csv").write_text("id,body\n1,where is my card\n")
    assert main(["measure", "--prompt", str(tmp_path / "prompt.txt"), "--items", str(tmp_path / "items.csv")]) == 2
    assert "its columns: id, body" in capsys.readouterr().err


def test_table(report, capsys):
    _print(report)
    out = " ".join(capsys.readouterr().out.split())
    assert f"verdict: {report.verdict}" in out
    assert f"{report.prefix_tokens} tokens" in out
    assert "same first token, so scored whole: card, card arrival" in out
    assert "4, 1 unusable" in out
    assert "every item" in out


def test_what_cannot_be_measured_is_named_before_a_model_is_opened():
    def never():
        raise AssertionError("the model was opened")

    engine = TransformersEngine("no-such-model", digests_path=never)
    with pytest.raises(UsageError, match="no texts were given"):
        measure(engine, SYSTEM, [])
    with pytest.raises(UsageError, match="not one text"):
        measure(engine, SYSTEM, "where is my card")


def test_a_prompt_that_leaves_no_room_is_named_with_both_numbers(local_engine):
    with pytest.raises(ContextTooLong, match=r"the prompt has \d+ tokens, and the context of .* holds 8192"):
        measure(local_engine, "x " * 9000, ["a"])
