"""Which answers are answers: by their text, in English and French."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.semantic.admission import (
    KINDS,
    as_asked,
    cut,
    errors,
    examine,
    features,
    find_by_rules,
    personal,
    placeholders,
    secrets,
)
from cachestack.semantic.admission.model import shipped

sre, parser = (importlib.import_module(name) for name in ("re._constants", "re._parser"))
QUESTION = "How do I reset my password?"
REFUSED = [
    ("refusal", "I'm sorry, but I can't help with that."),
    ("refusal", "As an AI language model, I don't have personal opinions."),
    ("refusal", "I don't have access to real-time data."),
    ("refusal", "I\u2019m unable to discuss individual accounts. Please contact support."),
    ("refusal", "**Sorry**, that request goes against our guidelines."),
    ("refusal", "The provided context does not contain that information."),
    ("refusal", "Je ne peux pas répondre à cette question."),
    ("refusal", "Désolé, je n'ai pas accès à vos données. N'hésitez pas si vous avez d'autres questions !"),
    ("refusal", "En tant qu'intelligence artificielle, je ne donne pas d'avis."),
    ("refusal", "We apologise for any inconvenience."),
    ("refusal", "Toutes mes excuses pour cette confusion."),
    ("error", "Internal Server Error"),
    ("error", "Erreur 500 : une erreur interne est survenue."),
    ("error", "Rate limit exceeded. Please try again in 20s."),
    ("error", "The request timed out."),
    ("error", '{"error": {"message": "model overloaded", "type": "server_error"}}'),
    ("error", '{"detail": "Not authenticated"}'),
    ("error", "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"),
    ("error", 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nKeyError: 1'),
    (
        "error",
        "java.lang.NullPointerException\n\tat com.acme.Shop.pay(Shop.java:12)\n\tat com.acme.Main.main(Main.java:3)",
    ),
    ("cut_off", "You open the settings first. Then you choose Security and click on the"),
    ("cut_off", "```python\nprint(1)\n"),
    ("cut_off", '{"steps": ["open", "click"'),
    ("cut_off", "Proceed as follows:"),
    ("placeholder", "..."),
    ("placeholder", "[insert answer here]"),
    ("placeholder", "undefined"),
    ("placeholder", "how do I reset my password"),
    ("asks_back", "Could you please tell me which account you mean?"),
    ("asks_back", "Of course! Pourriez-vous préciser votre numéro de client ?"),
]
KEPT = [
    (QUESTION, "Sorry about that! To reset your password, open Settings and click Security."),
    ("Do you ship to Canada?", "Unfortunately we do not ship to Canada; you can order through our partner Maple."),
    ("Can I return opened software?", "You cannot return opened software."),
    ("What does a 500 error mean?", "A 500 error means that the server failed while it worked on your request."),
    ("What does this trace say?", "This stack trace says that the key 'id' is missing. Add it before line 3."),
    (
        "Where is my balance?",
        "I can't see your account from here, but you can find the balance in the app under Accounts.",
    ),
    ("When are you open?", "Désolé, nous sommes fermés le lundi."),
    ("Can we bring a dog?", "Yes."),
    ("What is the capital of France?", "Paris"),
    ("List two fruits", "- apple\n- pear"),
    ("Is it safe to mix them?", "No, never do that: the fumes are poisonous."),
    ("How do I log in?", "Click the button in the corner to log in"),
    ("Translate: Je ne peux pas venir.", "I can't come."),
    ("Write a short note that I cannot attend.", "I am sorry, but I cannot attend the meeting on Friday."),
    ("Which would you take?", "I'd take the blue one."),
    ("Give me the body of a missing record as JSON", '{"error": {"code": 404, "message": "Record not found"}}'),
    ("Port of HTTPS?", "443"),
    ("How is Roman ten written?", "X"),
    ("Show a loop", "```python\nfor i in range(3):\n    print(i)\n```"),
    ("Thanks!", "You're welcome!"),
]


@pytest.mark.parametrize(("kind", "answer"), REFUSED, ids=[answer[:40] for _, answer in REFUSED])
def test_what_is_no_answer_is_told_by_its_text(kind: str, answer: str) -> None:
    found = examine(QUESTION, (), answer)
    assert found is not None
    assert found.kind == kind
    assert examine(QUESTION, (), answer, KINDS - {"refusal", "error", "cut_off", "placeholder", "asks_back"}) is None


@pytest.mark.parametrize(("question", "answer"), KEPT, ids=[answer[:40] for _, answer in KEPT])
def test_an_answer_that_only_looks_like_one_is_kept(question: str, answer: str) -> None:
    assert examine(question, (), answer) is None


def test_where_the_request_makes_answers_end_early_none_is_cut_off() -> None:
    cut_short = "You open the settings first. Then you choose Security and click on the"
    assert examine(QUESTION, (), cut_short, may_end_anywhere=True) is None


def test_a_translator_may_say_what_a_refusal_says() -> None:
    assert examine("Je ne sais pas.", ("You translate into English.",), "I don't know.") is None
    assert examine("Je ne sais pas.", (), "I don't know.") is not None


def test_evidence_has_no_word_of_the_answer() -> None:
    for _, answer in REFUSED:
        found = examine(QUESTION, (), answer)
        said = str(found.evidence).lower()
        assert not any(word in said for word in ("sorry", "password", "settings", "nginx", "shop", "désolé"))


@given(st.text(max_size=400), st.text(max_size=80))
def test_any_text_is_judged(answer: str, question: str) -> None:
    found = examine(question or "?", (), answer)
    assert found is None or found.kind in KINDS


@given(st.sampled_from([answer for kind, answer in REFUSED if kind == "refusal"]))
def test_a_refusal_that_then_solves_is_an_answer(refusal: str) -> None:
    solved = f"{refusal} To reset it, open Settings, click Security and choose a new password; it takes two minutes."
    assert examine(QUESTION, (), solved) is None


@given(st.text(alphabet="a.b ,\n'?!{\"<`1", max_size=20_000))
@settings(deadline=None)
def test_reading_is_bounded(text: str) -> None:
    assert len(features.features("What?", text)) <= 4_000


@pytest.mark.parametrize("piece", ["\n", "word ", "{", "A.b? ", "```\n", " ", "at x.y(", '{"a":', "<a>", "0-"])
def test_the_longest_answer_is_judged_in_a_bounded_time(piece: str) -> None:
    text = piece * (256 * 1024 // len(piece)) + "x"
    examine("What?", (), "warm")
    began = time.process_time()
    examine("What?", (), text)
    assert time.process_time() - began < 1.0


def test_the_system_prompt_of_a_translator_is_part_of_what_is_asked() -> None:
    assert as_asked("Non.", ("You translate into English.",)) == "translate: Non."
    assert as_asked("Non.", ("You are kind.",)) == "Non."


def test_what_may_be_asked_for_is_no_proof() -> None:
    """A rule that is certain by itself is only evidence where the question asks for such a thing."""
    for question, answer in (
        ("Extract the phone, null if missing: 'see you'", "null"),
        ("Show a JSON error body", '{"error": "not found"}'),
        ("How do I write a placeholder in a template?", "{{name}}"),
    ):
        found, is_sure = find_by_rules(question, answer)
        assert found is not None
        assert not is_sure
        assert find_by_rules("How far is it?", answer)[1]


@pytest.mark.parametrize(
    "answer",
    [
        f"echo: {QUESTION}",
        f"(the answer of your model to '{QUESTION}')",
        "an answer",
        "Answer 3: once",
        "Rue Verte",
        '{"city": "Lyon", "open": true, "floor": 2}',
    ],
)
def test_stubs_and_structured_answers_are_left_to_the_rules(answer: str) -> None:
    always = replace(shipped(), refuse_from=0.0)
    assert examine(QUESTION, (), answer, model=always) is None
    assert examine(QUESTION, (), f"I cannot answer '{QUESTION}'", model=always) is not None
    assert examine(QUESTION, (), '{"error": "down", "code": 500, "id": 3}', model=always) is not None


def test_the_threshold_decides_what_rules_leave_open() -> None:
    answer = "You could ask around, or not."
    never = replace(shipped(), refuse_from=1.1)
    always = replace(shipped(), refuse_from=0.0)
    assert examine(QUESTION, (), answer, model=never) is None
    assert examine(QUESTION, (), answer, model=always) is not None
    assert examine(QUESTION, (), "null", model=never) is not None


def patterns() -> Iterator[re.Pattern[str]]:
    for module in (cut, errors, features, personal, placeholders, secrets):
        for value in vars(module).values():
            yield from _in(value)


def _in(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _in(one)


def test_no_pattern_repeats_without_bound_what_may_repeat() -> None:
    """Star height one: no pattern can take a number of steps that grows faster than a small power of a clause."""
    found = list(patterns())
    assert len(found) > 60
    for pattern in found:
        _check(parser.parse(pattern.pattern, pattern.flags), pattern.pattern, within=False)


def _check(tree: Any, source: str, *, within: bool) -> None:
    for code, value in tree:
        if code in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            _, high, inner = value
            is_open = high == sre.MAXREPEAT
            assert not (within and is_open and len(inner) > 1), f"a repetition in an unbounded one: {source[:80]}"
            assert is_open or high <= 8192
            if is_open:
                assert all(c not in (sre.MAX_REPEAT, sre.MIN_REPEAT) for c, _ in inner), source[:80]
            _check(inner, source, within=within or is_open)
        elif code is sre.SUBPATTERN:
            _check(value[3], source, within=within)
        elif code is sre.BRANCH:
            for branch in value[1]:
                _check(branch, source, within=within)
        elif code in (sre.ASSERT, sre.ASSERT_NOT):
            _check(value[1], source, within=within)
