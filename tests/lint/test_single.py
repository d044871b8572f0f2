"""What one prompt alone shows, and what is hidden when it is shown."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cachestack.engines.token_space import Tokens
from cachestack.lint import lint
from cachestack.lint.masking import masked
from cachestack.lint.single import GAP
from cachestack.lint.space import Characters
from tests.lint.conftest import QUESTIONS, RULES, chat, chats, kinds
from tests.lint.test_clean import prose


class AddsBos(Characters):
    """A tokenizer that puts its BOS before every text, as those of Llama do."""

    bos = "<s>"

    def encode(self, text, *, is_rendered):
        plain = super().encode(text.replace("<s>", "\1"), is_rendered=is_rendered)
        added = 0 if is_rendered else 1
        ids = np.concatenate([np.full(added, 1, dtype=np.int32), plain.ids])
        return Tokens(ids, np.concatenate([np.zeros(added, dtype=np.int32), plain.starts]))


def test_bos_in_the_text_and_from_the_tokenizer() -> None:
    assert kinds(lint([f"<s>{RULES}"], model=AddsBos())) == ["double_bos"]
    assert kinds(lint([RULES], model=AddsBos())) == []
    assert kinds(lint([f"A strike tag is <s><s> in HTML. {RULES}"], model=AddsBos())) == []


@pytest.mark.parametrize("bos", ["<|begin_of_text|>", "<s>", "<|im_start|>"])
def test_bos_twice_in_the_text(run, bos) -> None:
    report = run([f"{bos}{bos}system\n{RULES}\n{q}" for q in QUESTIONS])
    assert kinds(report) == ["double_bos"]
    assert report.findings[0].num_prompts == len(QUESTIONS)
    assert kinds(run([f"{bos}system\n{RULES}\n{q}" for q in QUESTIONS])) == []


def test_a_short_system_prompt_never_hits(run) -> None:
    report = run([chat("Be brief.", q) for q in QUESTIONS])
    assert kinds(report) == ["short_prefix"]
    assert report.findings[0].num_prompts == len(QUESTIONS) - 1
    assert "prefix.min_tokens: 16 tokens" in report.findings[0].proposal
    assert kinds(run([chat("Be brief.", q) for q in QUESTIONS], min_tokens=4)) == []
    assert kinds(run([chat("Be brief.", QUESTIONS[0])])) == [], "one request has nothing to hit"


def test_a_message_over_the_budget(run) -> None:
    big = prose(1, 400)
    report = run([chat(RULES, f"{q}\n{prose(i, 400)}") for i, q in enumerate(QUESTIONS)], max_message_tokens=300)
    assert kinds(report) == ["oversized"]
    assert report.findings[0].num_prompts == len(QUESTIONS)
    assert report.findings[0].examples[0].where == "message 2 (user)"
    assert kinds(run([chat(big, q) for q in QUESTIONS], max_message_tokens=300)) == [], "it is shared, so it costs once"
    assert kinds(run([chat(RULES, prose(2, 100))], max_message_tokens=300)) == []


@pytest.mark.parametrize("change", [("", ""), ("facture", "note"), ("le colis", "LE  COLIS")])
def test_a_paragraph_twice_the_same_or_nearly(run, change) -> None:
    text = prose(3) + " La facture est jointe."
    report = run([chat(RULES, f"Here:\n\n{text}\n\nAgain:\n\n{text.replace(*change) if change[0] else text}\n\nWhy?")])
    assert kinds(report) == ["repeated"]


def test_other_paragraphs_and_what_a_conversation_says_again_are_no_repetition(run) -> None:
    assert kinds(run([chat(RULES, f"{prose(3)}\n\n{prose(4)}\n\n{prose(5)}")])) == []
    turns = [{"role": "user", "content": prose(3)}, {"role": "assistant", "content": "I see."}]
    log = [{"messages": [{"role": "system", "content": RULES}, *turns, *turns, {"role": "user", "content": "Well?"}]}]
    assert kinds(run(log)) == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("date", "Today is 3 March 2026. "),
        ("date", "Nous sommes le mardi 3 mars 2026. "),
        ("time", "Current time: 10:05. "),
        ("timestamp", "Generated at 2026-03-03T10:05:00Z. "),
        ("uuid", "You work on f81d4fae-7dec-41d0-a765-00a0c91e6bf6. "),
        ("identifier", "Session ID: sess_81d4fae7. "),
        ("date", "Today is {{date}}. "),
        ("user_name", "You help {user_name}. "),
        ("language", "Answer in ${language}. "),
    ],
)
def test_one_prompt_shows_what_will_change(run, kind, text) -> None:
    for prompt in (text + RULES, chat(text + RULES, "When?")):
        report = run([prompt])
        assert kinds(report) == [kind]
        assert not report.findings[0].observed
    assert kinds(run([f"{RULES}\n\n{text}"])) == []


def test_a_run_of_blanks_is_looked_at_once() -> None:
    assert GAP.search("a" + 9 * " " + "\n\n", 3) is None, "else a run of n blanks takes n * n steps"
    assert kinds(lint([f"a{9 * ' '}\n\n{prose(3)} \n \n{prose(3)}"], characters=True)) == ["repeated"]


def test_secrets_by_form_alone() -> None:
    for text, secret in (
        ("postgres://bob:hunter22@db/x", "hunter22"),
        ("FR76 3000 6000 0112 3456 7890 189", "3000 6000 0112 3456 7890 189"),
        ("SG.abcdefghijklmnop.qrstuvwxyz012345", "abcdefghijklmnop"),
    ):
        assert secret not in masked(text, 0, len(text))


SECRETS = [
    "sk-proj-a8Kd92LxQpV3mN7bTz4R",
    "ghp_a8Kd92LxQpV3mN7bTz4R1234",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_are_not_shown(run, secret) -> None:
    others = [secret[:-4] + "".join(random.Random(i).choices("XYZW9", k=4)) for i in range(3)]
    for head in (f"Key {{}} is used. {RULES}", f"Authorization: Bearer {{}}\n{RULES}", f"password={{}}\n{RULES}"):
        report = run(chats(*[head.format(key) for key in others]))
        assert report.findings
        shown = str(report.to_json())
        assert not any(key[a : a + 8] in shown for key in others for a in range(4, len(key) - 8))


@pytest.mark.parametrize(
    "text",
    [
        "password: hunter22",
        "DB_PASSWORD=hunter22",
        "client_secret: hunter22",
        "SECRET_KEY=hunter22",
        "refresh_token=hunter22",
        "mot de passe : été2026",
        "mdp: été2026",
        "clé API : abcd1234",
        "jeton d'accès : abcd1234",
        "passphrase: abcd1234",
        "api_key='abcd1234'",
        "token is abcd1234",
        *SECRETS,
    ],
)
def test_every_cut_of_a_text_with_a_secret_hides_it(text) -> None:
    secret = text.split()[-1].rpartition("=")[2].strip("'")
    whole = f"We said {text} yesterday."
    at = whole.index(secret)
    for start in range(0, len(whole), 3):
        shown = masked(whole, start, len(whole))
        assert len(shown) == len(whole) - start
        assert whole[max(start, at) : at + len(secret)] not in shown or start >= at + len(secret)
    assert masked(whole, 0, 7) == "We said"
