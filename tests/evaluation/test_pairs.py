"""Pairs with a judgement: what is read, what is counted, and that the decisions are those of a real stack."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cachestack.decisions import Reason
from cachestack.engines.base import TextStream
from cachestack.errors import EncoderError, InputFileError
from cachestack.evaluation.counting import summarise
from cachestack.evaluation.judging import ENCODE_AT_ONCE, Outcome, embed_all, judge_pairs, mistake_rows
from cachestack.evaluation.pairs import Pair, read_pairs
from cachestack.policy import Policy
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Generation, Message, Request
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.index import FaissIndex
from cachestack.stack import CacheStack
from cachestack.stores.disk import DiskStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LetterEncoder:
    """Vectors of letter counts: a real, if poor, encoder that needs no model."""

    name = "letters"
    languages = frozenset({"en"})
    window_tokens = 60
    fingerprint = "letters-1"
    dimension = 26

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def fits_window(self, text: str) -> bool:
        return len(text) <= self.window_tokens

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        self.calls.append(list(texts))
        if any("NaN" in text for text in texts):
            raise EncoderError("not finite")
        counts = np.array([[1e-3 + t.lower().count(chr(97 + i)) for i in range(26)] for t in texts], dtype=np.float32)
        unit: NDArray[np.float32] = counts / np.linalg.norm(counts, axis=1, keepdims=True)
        return unit


GUARDS_ALONE = Policy.model_validate({"semantic": {"verifiers": [], "reject_below": 0.8}})
"""What letters say of two texts is nothing that a verifier was trained on."""


def line(a: Any, b: Any, same: bool, category: str = "kind", id: str = "1") -> str:
    return json.dumps({"id": id, "a": a, "b": b, "same_answer": same, "category": category, "source": "test"})


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def conversation(passage: str, question: str) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": passage},
        {"role": "assistant", "content": "I have read it."},
        {"role": "user", "content": question},
    ]


def judged(path: Path, policy: Policy | None = None) -> tuple[Outcome, ...]:
    return judge_pairs(read_pairs(path), policy or GUARDS_ALONE, LetterEncoder())


def counts(share: dict[str, Any]) -> Any:
    return share["n"], share["served"], share["rate"]


def test_counts_what_was_served_by_kind(tmp_path: Path) -> None:
    file = write(
        tmp_path / "pairs.jsonl",
        line("How do I renew my visa?", "How do I renew my visa?", True, "repeat"),
        line("How do I renew my visa?", "how do i renew my visa please", True, "polite"),
        line("How do I renew my visa?", "What is a dormouse?", True, "far"),
        line("How do I renew my visa?", "How do I renew my passport?", False, "entity"),
        line("Convert 3 km to miles", "Convert 8 km to miles", False, "number"),
    )
    outcomes = judged(file)
    assert [o.reason for o in outcomes] == [
        Reason.EXACT,
        Reason.SIMILAR,
        Reason.BELOW_THRESHOLD,
        Reason.BELOW_THRESHOLD if not outcomes[3].detail.get("guard") else Reason.GUARD_REJECTED,
        Reason.GUARD_REJECTED,
    ]
    summary = summarise(outcomes)
    assert counts(summary["should_hit"]) == (3, 2, pytest.approx(2 / 3))
    assert summary["should_hit"]["interval"] == pytest.approx([0.2077, 0.9385], abs=1e-4)
    assert counts(summary["traps"]) == (2, 0, 0)
    assert summary["traps"]["interval"] == pytest.approx([0, 0.6576], abs=1e-4)
    assert counts(summary["by_category"]["polite"]) == (1, 1, 1)
    assert summary["by_category"]["polite"]["should_hit"] is True
    assert counts(summary["by_category"]["number"]) == (1, 0, 0)
    assert summary["by_category"]["number"]["should_hit"] is False
    json.dumps(summary, allow_nan=False)


def test_a_rate_of_nothing_is_zero(tmp_path: Path) -> None:
    summary = summarise(judged(write(tmp_path / "p.jsonl", line("a cat", "a cat", True))))
    assert summary["traps"] == {"n": 0, "served": 0, "rate": 0, "interval": [0, 1]}


def test_a_category_with_both_kinds_is_counted_in_two_parts(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", line("a cat", "a cat", True, "x"), line("a cat", "a dog", False, "x"))
    assert set(summarise(judged(file))["by_category"]) == {"x (should hit)", "x (traps)"}


def test_standard_input_is_read_and_left_open() -> None:
    stdin = io.BytesIO(b"\xef\xbb\xbf" + line("a cat", "the cat", True).encode() + b"\n\n{broken\n")
    with pytest.raises(InputFileError, match=r"standard input:3: not JSON"):
        read_pairs("-", stdin=stdin)
    assert not stdin.closed
    stdin.seek(0)
    assert [pair.b[-1].content for pair in read_pairs("-", 1, stdin)] == ["the cat"]
    with pytest.raises(InputFileError, match="standard input holds no pairs"):
        read_pairs("-", stdin=io.BytesIO(b"\n"))


def test_pairs_do_not_see_each_other(tmp_path: Path) -> None:
    """The second pair's `b` is the first pair's `a`: in one partition it would be served exactly."""
    file = write(tmp_path / "p.jsonl", line("a cat", "a dog", False), line("a mouse", "a cat", False))
    assert [o.served for o in judged(file)] == [False, False]


def test_another_story_before_the_same_question_is_not_served(tmp_path: Path) -> None:
    file = write(
        tmp_path / "p.jsonl",
        line(conversation("It rained.", "Was it wet?"), conversation("It rained.", "Was it wet?"), True),
        line(conversation("It rained.", "Was it wet?"), conversation("It was dry.", "Was it wet?"), False),
    )
    assert [o.reason for o in judged(file)] == [Reason.EXACT, Reason.CONTEXT_DIFFERS]


def test_the_policy_decides(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", line("How do I renew my visa?", "how do i renew my visa please", True))
    exact_only = Policy.model_validate({"semantic": {"by_meaning": False}})
    off = Policy.model_validate({"semantic": {"enabled": False}})
    assert judged(file)[0].served
    assert judged(file, exact_only)[0].reason is Reason.EXACT_ONLY
    assert judged(file, off)[0].reason is Reason.DISABLED


def test_texts_beyond_the_window_and_broken_vectors_are_misses(tmp_path: Path) -> None:
    long = "what is a very long question " * 4
    file = write(
        tmp_path / "p.jsonl",
        line(long, long + "please", True),
        line("what is NaN here", "what is a NaN here", True),
        line("what is a cat", "what is a cat", True),
    )
    assert [o.reason for o in judged(file)] == [Reason.BEYOND_WINDOW, Reason.ENCODER_FAILED, Reason.EXACT]


def test_each_text_is_encoded_once_in_batches_by_length() -> None:
    encoder, reports = LetterEncoder(), []
    texts = [f"text {n}" for n in range(ENCODE_AT_ONCE + 10)] * 2
    found = embed_all(texts, encoder, lambda *said: reports.append(said))
    flat = [text for call in encoder.calls for text in call]
    assert len(flat) == len(set(flat)) == len(found) == ENCODE_AT_ONCE + 10
    assert [len(t) for t in flat] == sorted(len(t) for t in flat)
    assert reports[-1] == ("encode", ENCODE_AT_ONCE + 10, ENCODE_AT_ONCE + 10)


def test_without_an_encoder_only_exact_repeats_are_served(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", line("a cat", " a cat ", True), line("a cat", "the cat", True))
    outcomes = judge_pairs(read_pairs(file), Policy(), None)
    assert [o.reason for o in outcomes] == [Reason.EXACT, Reason.NO_ENCODER]


def test_mistakes_name_their_place(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", line("a cat", "a cat", True), line("a cat", "a cat", False, id="wrong"))
    [row] = mistake_rows(judged(file))
    assert row["place"] == f"{file}:2"
    assert (row["id"], row["mistake"], row["reason"]) == ("wrong", "served", "exact")
    json.dumps(row)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{not json", "not JSON"),
        ("[1]", "must be an object"),
        ('{"a": "x", "b": "y"}', "same_answer"),
        ('{"a": "x", "b": "y", "same_answer": "yes"}', "true or false"),
        ('{"a": "", "b": "y", "same_answer": true}', "a: the prompt is empty"),
        ('{"a": "x", "b": [{"role": "user"}], "same_answer": true}', "b: each message"),
        ('{"a": "x", "b": 7, "same_answer": true}', "b: a prompt is"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, bad: str, says: str) -> None:
    file = write(tmp_path / "p.jsonl", line("a", "b", True), "", bad)
    with pytest.raises(InputFileError, match=re.escape(f"{file}:3")) as caught:
        read_pairs(file)
    assert says in str(caught.value)


def test_a_missing_or_empty_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="cannot be read"):
        read_pairs(tmp_path / "none.jsonl")
    with pytest.raises(InputFileError, match="holds no pairs"):
        read_pairs(write(tmp_path / "p.jsonl", ""))


def test_the_limit_is_taken_from_the_start(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", *(line("a", "b", True, id=str(n)) for n in range(5)))
    assert [pair.id for pair in read_pairs(file, 2)] == ["0", "1"]


PASSAGE, OTHER_PASSAGE = "The shop opens at nine.", "The shop opens at ten."
QUESTIONS: list[tuple[str, str]] = [
    ("How do I renew my visa?", "How do I renew my visa?"),
    ("How do I renew my visa?", "  How do I renew my visa?\r\n"),
    ("How do I renew my visa?", "how do i renew my visa"),
    ("How do I renew my visa?", "What is the best way to renew my visa?"),
    ("How do I renew my visa?", "Hi, could you tell me how to renew my visa? Thanks!"),
    ("How do I renew my visa?", "How do I cancel my visa?"),
    ("How do I renew my visa?", "How do I renew my passport?"),
    ("How do I renew my visa?", "What do dormice eat?"),
    ("What are the symptoms of anaemia?", "what are the symtoms of anaemia"),
    ("What is the capital of Chad?", "capital of Chad"),
    ("What is the capital of Chad?", "What is the capital of Mali?"),
    ("Convert 100 USD to EUR", "Convert 250 USD to EUR"),
    ("Convert 100 USD to EUR", "Convert $100 to EUR"),
    ("Convert miles to km", "Convert km to miles"),
    ("Turn on the heating", "Turn off the heating"),
    ("What is on today?", "What is on tomorrow?"),
    ("Which plants need sun?", "Which plants do not need sun?"),
    ("Where can I buy a ticket?", "Where can I purchase a ticket?"),
    ("Where can I buy a ticket?", "Where can I sell a ticket?"),
    ("The difference between jam and jelly", "the difference between jelly and jam"),
    ("In Perl, how do I sort a list?", "How do I sort a list in Perl?"),
    ("Why is the sky blue?", "Why does the sky look blue?"),
    ("Who wrote Emma?", "When was Emma written?"),
    ("Is rice healthier than bread?", "Is bread healthier than rice?"),
    ("wifi?", "wifi"),
    ("Comment renouveler mon visa ?", "Comment renouveler mon visa ?"),
    ("Comment renouveler mon visa ?", "comment puis-je renouveler mon visa"),
    ("How do I renew my visa?", "Comment renouveler mon visa ?"),
    ("wie kann ich mein visum erneuern", "wie erneuere ich mein visum"),
    ("word " * 300, "word " * 300),
    ("word " * 300, "word " * 301),
    ("What does `ls -a` do?", "What does `ls -l` do?"),
    ("Delete the drafts", "Delete all the drafts"),
    ("What is two plus three?", "What is 2 plus 3?"),
]


def as_pair(number: int, a: Any, b: Any) -> Pair:
    def messages(value: Any) -> tuple[Message, ...]:
        turns = [{"role": "user", "content": value}] if isinstance(value, str) else value
        return tuple(Message(t["role"], t["content"]) for t in turns)

    return Pair(str(number), messages(a), messages(b), True, "kind", f"here:{number}")


@pytest.fixture(scope="module")
def encoder(encoder_path: Path) -> SentenceEncoder:
    return SentenceEncoder(str(encoder_path))


class EchoEngine:
    """A text engine whose answer tells which request it answered."""

    name = "echo"
    model = "echo"

    def stream(self, request: Request) -> TextStream:
        text = f"Page {zlib.crc32(request.question.encode())} of the manual."
        yield text
        return Generation(text)


@pytest.mark.parametrize(
    "policy_text",
    [
        "{}",
        "default: {semantic: {verifiers: []}}",
        pytest.param(
            "default: {semantic: {reject_below: 0.5, accept_from: 0.7, languages: any, unguarded_languages: serve}}",
            marks=pytest.mark.full,
        ),
    ],
)
def test_decisions_are_those_of_a_real_stack(tmp_path: Path, encoder: SentenceEncoder, policy_text: str) -> None:
    """The same pairs, asked of a CacheStack with its own store and index."""
    policies = PolicySet.parse(policy_text, "test policy")
    asked: list[tuple[Any, Any]] = [
        *QUESTIONS,
        (conversation(PASSAGE, "When does it open?"), conversation(PASSAGE, "when does it open")),
        (conversation(PASSAGE, "When does it open?"), conversation(PASSAGE, "When does it open?")),
        (conversation(PASSAGE, "When does it open?"), conversation(OTHER_PASSAGE, "When does it open?")),
        (conversation(PASSAGE, "When does it open?"), "When does it open?"),
    ]
    pairs = [as_pair(number, a, b) for number, (a, b) in enumerate(asked)]
    outcomes = judge_pairs(pairs, policies.policy("default"), encoder)
    engine, store = EchoEngine(), DiskStore(tmp_path)
    prefix = PrefixLayer(BlockPool(max_bytes=0), secret=b"test")
    with CacheStack(
        engines={}, store=store, index=FaissIndex(store), encoder=encoder, prefix=prefix, policies=policies
    ) as stack:
        for pair, outcome in zip(pairs, outcomes, strict=True):
            tenant = f"tenant {pair.id}"
            first = stack.respond(Request(pair.a, tenant=tenant), engine)
            assert first.trace.served_from == "engine"
            second = stack.respond(Request(pair.b, tenant=tenant), engine)
            said = f"{pair.a[-1].content[:60]!r} then {pair.b[-1].content[:60]!r}: {outcome.reason}, {second.trace}"
            assert (second.trace.served_from != "engine") is outcome.served, said
            assert (second.text == first.text) is (outcome.served or pair.a[-1] == pair.b[-1]), said
            step = next(s for s in second.trace.steps if s.layer.value == "semantic")
            assert step.reason is outcome.reason, said
    assert 5 < sum(o.served for o in outcomes) < len(outcomes) - 5
