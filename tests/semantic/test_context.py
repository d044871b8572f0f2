"""What a question leans on of the turns before it, and whether two questions lean on the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.requests import Message, as_messages
from cachestack.semantic.context import Meeting, compared, context_of, dumps, language_of, loads, turn_of
from cachestack.semantic.context.leaning import leaning_of
from cachestack.semantic.context.turns import MAX_CHARACTERS, MAX_SCANNED
from tests.semantic.conversation_cases import CASES, HELLO, PLAIN, REFUND, Case, turns

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60).filter(str.strip)
SAID = st.sampled_from([line for case in CASES for line in (*case.first, *case.second)]).map(
    lambda line: turns(line)[0]
)
HISTORIES = st.lists(SAID | st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), TEXTS), max_size=8)


def met(a: tuple[Message, ...], b: tuple[Message, ...]) -> Meeting:
    """As in a look-up: what was kept of `a`, and `b` as it is asked."""
    kept = loads(dumps(context_of(a)))
    assert kept is not None
    cached = turn_of(a[-1].content, language_of(a), kept)
    return compared(cached, turn_of(b[-1].content, language_of(b), context_of(b)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_conversation_serves_another_where_what_matters_is_the_same(case: Case) -> None:
    a, b = case.conversations()
    assert met(a, b).same == met(b, a).same == case.serves, met(a, b)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_conversation_serves_itself_unless_it_is_not_read(case: Case) -> None:
    for conversation in case.conversations():
        meeting = met(conversation, conversation)
        assert meeting.same or meeting.kind == "unread"


@settings(deadline=None, max_examples=150)
@given(first=HISTORIES, second=HISTORIES, last=st.sampled_from([PLAIN, "cancel it", "oui", "And for two?"]))
def test_which_one_was_first_does_not_matter(first: list[Message], second: list[Message], last: str) -> None:
    a, b = ((*history, Message("user", last)) for history in (first, second))
    assert met(a, b).same == met(b, a).same


@settings(deadline=None, max_examples=150)
@given(history=HISTORIES)
def test_what_is_kept_can_be_read_again_is_small_and_has_no_words(history: list[Message]) -> None:
    context = context_of((*history, Message("user", PLAIN)))
    kept = dumps(context)
    assert loads(kept) == context
    assert len(kept) < 2600
    assert "Lyon" not in kept
    assert "refund" not in kept


@settings(deadline=None)
@given(
    text=st.text(max_size=80) | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(json.dumps)
)
def test_what_was_not_kept_by_this_version_is_not_read(text: str) -> None:
    assert loads(text) is None


def test_another_version_or_shape_is_not_read() -> None:
    kept = json.loads(dumps(context_of(turns(*REFUND, "u: cancel it"))))
    for change in ({"v": 2}, {"v": None}, {"new": 1}, {"x": 3}, {"x": [["w", "a"]]}, {"x": [["?abcd", "a"]]}):
        assert loads(json.dumps(kept | change)) is None
    assert loads(json.dumps(kept)) is not None


def test_a_long_history_is_read_in_part_and_the_rest_compared_as_a_whole() -> None:
    """What lies beyond is no reason to serve: it counts as it is."""
    long = tuple(
        Message(role, f"My order {n} of plates has arrived. " * 8) for n in range(200) for role in ("user", "assistant")
    )
    assert sum(len(m.content) for m in long) > 2 * MAX_SCANNED
    last = Message("user", "cancel it")
    assert len(dumps(context_of((*long, last)))) < 2600
    assert met((*long, last), (*long, last)).same
    other = (Message("user", "My order 7 of forks has arrived. " * 8), *long[1:], last)
    assert not met((*long, last), other).same


def test_what_is_too_old_to_be_read_for_facts_counts_as_a_whole() -> None:
    """Between what is read and what is searched for instructions."""
    order = "My order of plates has arrived, thirty of them, all in one box. "
    long = tuple(Message(role, order * 5) for _ in range(20) for role in ("user", "assistant"))
    assert MAX_CHARACTERS < sum(len(m.content) for m in long) < MAX_SCANNED
    last = Message("user", "cancel it")
    other = (Message("user", order.replace("plates", "forks") * 5), *long[1:], last)
    assert met((*long, last), (*long, last)).same
    assert met((*long, last), other).kind == "older_turns"


def test_a_text_after_which_all_was_said_in_another_language_is_not_read() -> None:
    spanish = turns("u: Quiero devolver las botas que compré ayer en la tienda.", "a: Claro, dígame.", "u: cancel it")
    assert met(spanish, spanish).kind == "unread"


@pytest.mark.parametrize(
    "text",
    ["How do I reset my password?", "Great, thanks. What is the capital of Australia?",
     "Is it possible to pay in cash on Sundays?",
     "Comment réinitialiser mon mot de passe ?", "Merci ! Faut-il un visa pour le Canada ?"],
)  # fmt: skip
def test_it_stands_alone(text: str) -> None:
    assert leaning_of(text, None if text.isascii() else "fr").alone


@pytest.mark.parametrize(
    ("text", "why"),
    [("cancel it", "points back"), ("yes please", "an answer"), ("And for two?", "goes on"), ("oui", "an answer"),
     ("How long is mine?", "points back"), ("How much?", "points back"), ("What does the second cost?", "points back"),
     ("How long does the warranty last?", "takes for known"), ("So when can I order?", "goes on")],
)  # fmt: skip
def test_it_leans(text: str, why: str) -> None:
    assert leaning_of(text, "fr" if text == "oui" else "en").why == why


def test_evidence_has_the_words_of_who_asks_and_none_of_the_other() -> None:
    """Two people of one tenant: what one has told is not shown to the other."""
    mine = turns("u: My card ending in 4242 was stolen in Seville.", "a: I see.", "u: block it")
    theirs = turns("u: My card ending in 1111 was lost in Bergen.", "a: I see.", "u: block it")
    meeting = met(mine, theirs)
    assert not meeting.same
    assert "1111" in str(meeting.evidence)
    assert "4242" not in str(meeting.evidence)
    assert "seville" not in str(meeting.evidence).casefold()


def test_the_last_question_alone_is_wrong_on_passages_that_differ() -> None:
    """Questions after two versions of a passage: without the turns before, every one would be served."""
    file = SHARED / "pairs" / "other_context.jsonl"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    traps = [(as_messages(row["a"]), as_messages(row["b"])) for row in rows if not row["same_answer"]]
    same_last = [(a, b) for a, b in traps if a[-1] == b[-1]]
    assert len(same_last) > 0.95 * len(traps)
    served = sum(met(a, b).same for a, b in traps)
    assert served <= 0.03 * len(traps)


def test_a_greeting_is_as_good_as_no_history() -> None:
    assert met(turns("u: cancel it"), turns(*HELLO, "u: cancel it")).kind == "stands_alone"
