"""Logs with nothing to mend: an alarm here would make the linter useless."""

from __future__ import annotations

import random

import pytest

from cachestack.lint.families import MAX_KNOWN, Families
from cachestack.lint.logs import as_logged
from tests.lint.conftest import QUESTIONS, RULES, chat, chats, kinds

WORDS = ["parcel", "invoice", "account", "order", "refund", "office", "river", "glass", "le colis", "la réunion"]


def prose(seed: int, num_words: int = 120) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(num_words)).capitalize() + "."


def conversation() -> list:
    turns = [{"role": "system", "content": RULES}]
    log = []
    for i in range(6):
        turns = [*turns, {"role": "user", "content": f"{QUESTIONS[i % 5]} [10:0{i}]"}]
        log.append({"messages": turns, "user": "ana"})
        turns = [*turns, {"role": "assistant", "content": f"Answer {i} of 2026-03-0{i + 1} is on page {i}."}]
    return log


def window() -> list:
    turns = [
        turn
        for i in range(20)
        for turn in (
            {"role": "user", "content": f"{QUESTIONS[i % 5]} It is number {i}"},
            {"role": "assistant", "content": f"See page {i * 7} of the handbook, please."},
        )
    ]
    system = {"role": "system", "content": RULES}
    return [
        {"messages": [system, *turns[2 * i : 2 * i + 8], {"role": "user", "content": f"And {i}?"}]} for i in range(6)
    ]


TRANSLATE = "Translate what the user writes into good French. Keep names and numbers as they are, and add nothing."
LAST = "which is the one behind the station where you also take back what I do not want to keep"
CLEAN = {
    "one system prompt": chats(*[RULES] * 5),
    "repeated requests": chats(RULES) * 5,
    "values in the questions": [
        chat(
            RULES,
            f"Was my order #48{i} of March {i + 1}, 2026 sent at 10:0{i} to the shop that I named, {LAST}?",
        )
        for i in range(8)
    ],
    "long questions that begin alike": [
        chat(RULES, f"My invoice of {i + 3} March is wrong. {prose(i, 60)}") for i in range(5)
    ],
    "documents behind the instructions": [chat(f"{RULES}\n\n{prose(i)}", q) for i, q in enumerate(QUESTIONS)],
    "two documents of many that are nearly the same": [
        chat(
            f"{RULES}\n\n{prose(i - i % 20)} It is {i % 20}." if i % 20 < 2 else f"{RULES}\n\n{prose(i)}",
            QUESTIONS[i % 5],
        )
        for i in range(40)
    ],
    "two documents that begin otherwise": [
        chat(
            f"{RULES}\n\n{'A word of' if i % 20 else 'One more for'} {prose(i if i % 20 > 1 else 1)}", QUESTIONS[i % 5]
        )
        for i in range(40)
    ],
    "documents with dates": [
        chat(f"{RULES}\n\nPublished on {i + 1} March 2026. {prose(i)}", q) for i, q in enumerate(QUESTIONS)
    ],
    "two applications in turns": [chat(RULES if i % 2 else TRANSLATE, QUESTIONS[i % 5]) for i in range(10)],
    "a growing conversation": conversation(),
    "a conversation whose first turns are left out": window(),
    "one edit of the system prompt": [
        chat(RULES if i < 20 else RULES.replace("politely", "briefly"), f"{QUESTIONS[i % 5]} {i}") for i in range(40)
    ],
    "one new number in the system prompt": [
        chat(f"Policy version {12 if i < 20 else 13}. {RULES}", f"{QUESTIONS[i % 5]} {i}") for i in range(40)
    ],
    "one reformatting of the system prompt": [
        chat(RULES if i < 20 else RULES.replace(". ", ".\n"), f"{QUESTIONS[i % 5]} {i}") for i in range(40)
    ],
    "tenants with dates of their own": [
        chat(f"Handbook of {i + 1} March 2026. {RULES}", q, tenant=f"t{i % 2}", user="ana")
        for i, q in zip((0, 1, 0, 1, 0), QUESTIONS, strict=True)
    ],
    "a date that changes once among many": [
        chat(f"Today is {1 + i // 40} March 2026. {RULES}", f"{QUESTIONS[i % 5]} {i}") for i in range(80)
    ],
    "a profile at the end of the system prompt": [
        chat(f'{RULES}\n\nProfile: {{"name": "{name}", "plan": "gold", "city": "Lyon", "since": 2019}}', q)
        for name, q in zip(("Ana", "Bob", "Léa", "Zoé"), QUESTIONS, strict=False)
    ],
    "documents, each in two prompts, before a line that all have": [
        f"{prose(i + 10)}\n\n{prose(20 + i // 2)}\n\nAnswer from the texts above, in one sentence.\n{QUESTIONS[i % 5]}"
        for i in range(8)
    ],
    "questions without a system prompt": [{"messages": [{"role": "user", "content": q}]} for q in QUESTIONS],
    "text prompts with the question last": [f"{RULES}\n\nQuestion: {q}\nAnswer:" for q in QUESTIONS],
    "a text with dates and times that stay": [
        f"ACME was founded on 3 March 1998 and moved on 2004-05-06. Open from 9:00 to 17:00, call 0800 123 456. {RULES}"
    ],
}


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_log_has_no_finding(run, name) -> None:
    report = run(CLEAN[name])
    assert kinds(report) == []
    assert report.mended_tokens == report.reusable_tokens


def test_what_an_earlier_prompt_made_up_for_is_not_lost_again(run) -> None:
    prompts = [
        chat(f"You are helping {('Ana', 'Bob')[i % 2]} today. {RULES}", f"{QUESTIONS[i % 5]} {i}") for i in range(20)
    ]
    report = run(prompts)
    assert kinds(report) == ["user_name"]
    assert report.findings[0].num_prompts == 1, "from the third on, each finds its own user's prefix"


def test_alternating_forms_are_a_habit_and_no_edit(run) -> None:
    prompts = [chat(RULES.replace(". ", ".\r\n" if i % 2 else ".\n"), f"{QUESTIONS[i % 5]} {i}") for i in range(8)]
    assert kinds(run(prompts)) == ["white_space"]


def test_a_capital_behind_a_role_s_header_is_no_name(run) -> None:
    prompts = [
        {"messages": [{"role": "user", "content": f"{word} {prose(i, 60)}\n\n{RULES}"}]}
        for i, word in enumerate(("Train", "Delivery", "Oak"))
    ]
    assert kinds(run(prompts)) == ["variable"]


def test_what_many_families_have_is_kept_of_a_few() -> None:
    families = Families()
    texts = [
        f"how do i get to {' '.join(f'{a}{b}{c}' for c in 'efghijklm')}" for a in "abcdefghijklm" for b in "opqrstu"
    ]
    assert len({families.family_of(as_logged(text, "here")) for text in texts}) == len(texts) > MAX_KNOWN
    assert max(map(len, families._by_triple.values())) == MAX_KNOWN


def test_families_pass_over_numbers_and_keep_tenants_apart() -> None:
    def family(text: str, tenant: str = "t") -> int:
        return families.family_of(as_logged({"prompt": text, "tenant": tenant}, "here"))

    families = Families()
    first = family("Order 4811 of 2026-03-03 at 10:05 for seat 7")
    assert family("Order 90 of 2025-12-31 at 23:59 for seat 12") == first
    assert family("Order 90 of 2025-12-31 at 23:59 for seat 12", "u") != first
    assert family("Translate what follows into good French") != first


def test_at_least_one_token_of_a_known_prompt_is_computed(run) -> None:
    report = run(chats(RULES) * 2)
    assert report.reusable_tokens == report.num_tokens // 2 - 1
