"""Each thing that breaks a prefix is found, called by its name, and shown with what stood there; nothing else is."""

from __future__ import annotations

import json
import random
import uuid

import pytest

from tests.lint.conftest import QUESTIONS, RULES, chat, chats, kinds

NEAR = 24  # tokens of the changing value and the header before it


def ids(seed: int) -> str:
    return str(uuid.UUID(int=random.Random(seed).getrandbits(128), version=4))


def hexes(seed: int) -> str:
    return f"{random.Random(seed).getrandbits(64):016x}"


VALUES = [
    ("date", "Today is {}. ", ["March 3, 2026", "March 4, 2026", "April 12, 2026"]),
    ("date", "Today is {}. ", ["January 30th", "June 1st", "July 2nd"]),
    ("date", "As of {}, the rules are: ", ["3 March 2026", "13 March 2026", "14th of March"]),
    ("date", "Nous sommes {}. ", ["le 3 mars 2026", "le 4 mars 2026", "le 1er avril 2026"]),
    ("date", "Nous sommes {}. ", ["mardi 3 mars", "mercredi 4 mars", "jeudi 5 août"]),
    ("date", "Date du jour : {}\n", ["3 mars", "30 mars", "1er août"]),
    ("date", "Date : {}\n", ["03/03/2026", "04/03/2026", "15/03/26"]),
    ("date", "{}\n", ["2026-03-03", "2026-03-04", "2026-12-31"]),
    ("date", "[{}] ", ["3.3.2026", "4.3.2026", "14.3.2026"]),
    ("date", "Happy {}! ", ["Monday", "Tuesday", "Sunday"]),
    ("date", "C'est {}. ", ["lundi", "mardi", "dimanche"]),
    ("date", "It is {}. ", ["March 2026", "April 2026", "May 2026"]),
    ("time", "It is {}. ", ["10:05", "11:05", "23:59"]),
    ("time", "It is {} now. ", ["10:05:33", "10:05:34", "10:06:01"]),
    ("time", "It is {}. ", ["1:05 PM", "2:05 PM", "11:55 AM"]),
    ("time", "It is {}. ", ["1 pm", "2 pm", "11 a.m."]),
    ("time", "Il est {}. ", ["9h05", "10h05", "14 h 30"]),
    ("timestamp", "Generated at {}. ", ["2026-03-03T10:00:00Z", "2026-03-03T10:01:00Z", "2026-03-04T00:00:00+01:00"]),
    ("timestamp", "Now: {}\n", ["2026-03-03 10:00", "2026-03-03 10:01", "2026-03-04 23:59"]),
    ("timestamp", "Now: {}\n", ["1760000000", "1760000100", "1760000217"]),
    ("timestamp", "Now: {}\n", ["1760000000123", "1760000100456", "1760000217789"]),
    ("timestamp", "Nous sommes le {}. ", ["3 mars 2026 à 10h05", "3 mars 2026 à 10h06", "4 mars 2026 à 9h00"]),
    ("timestamp", "It is {}. ", ["3 March 2026 at 10:05", "3 March 2026 at 10:06", "4 March 2026 at 1:00 PM"]),
    ("uuid", "Session {}\n", [ids(1), ids(2), ids(3)]),
    ("uuid", "{} ", [ids(1).upper(), ids(2).upper(), ids(3).upper()]),
    ("identifier", "Trace {}\n", [hexes(1), hexes(2), hexes(3)]),
    ("identifier", "Request {}\n", ["req_1a8Kd92Lx", "req_2a8Kd92Lx", "req_99xKd92L0"]),
    ("identifier", "Session ID: {}\n", ["88421", "90010", "12"]),
    ("identifier", '{{"session_id": "{}"}}\n', ["k2-88421", "k2-90010", "k9-1"]),
    ("counter", "Ticket #{}\n", ["4811", "4812", "4813"]),
    ("counter", "Turn {} of 10. ", ["1", "2", "3"]),
    ("counter", "Demande n° {}\n", ["88", "97", "1204"]),
    ("counter", "This is question no. {}. ", ["88", "97", "1204"]),
    ("counter", "So far {} people have asked. ", ["88", "89", "90"]),
    ("user_name", "User: {}\n", ["ana@example.com", "bob@example.com", "zoe.roux@example.org"]),
    ("user_name", "You are helping {} with an order. ", ["Ana Martin", "Bob Stone", "Zoé Roux"]),
    ("user_name", "Customer name: {}\n", ["Ana", "Bob", "Élodie"]),
    ("user_name", "Bonjour {}, voici les règles. ", ["Zoé", "Léa", "Élodie"]),
    ("user_name", "Utilisatrice : {}\n", ["Zoé", "Léa", "Élodie"]),
    ("user_name", "Speaking with Mr. {} today. ", ["Stone", "Martin", "Li"]),
    ("user_name", "Le client est {}. ", ["M. Dupont", "Mme Roux", "Mlle Petit"]),
    ("user_name", "You are helping {}. ", ["Jean de la Tour", "Anne-Marie du Pré", "Luc van den Berg"]),
    ("user_name", "user={}\n", ["jdupont", "aroux", "z.petit"]),
    ("user_name", "<user>{}</user>\n", ["Ana", "Zoé", "luc42"]),
    ("user_name", "- **User**: {}\n", ["Ana", "Bob", "Zoé"]),
    ("identifier", "Commit: {}\n", ["3f9a2b1", "a81bc02", "99f0e1d"]),
    ("metadata", "<plan>{}</plan>\n", ["gold", "free", "team"]),
    ("language", "Locale: {}\n", ["fr-FR", "en-GB", "pt-BR"]),
    ("language", "Language: {}\n", ["French", "English", "German"]),
    ("language", "Language: {}\n", ["fr", "en", "de"]),
    ("language", "Answer in {}. ", ["French", "English", "German"]),
    ("language", "Réponds en {}. ", ["français", "anglais", "espagnol"]),
    ("metadata", "Location: {}\n", ["Paris", "Lyon", "Nice"]),
    ("metadata", "- Plan: {}\n", ["gold", "free", "team"]),
    ("metadata", "Fuseau horaire : {}\n", ["Europe/Paris", "Asia/Tokyo", "America/Lima"]),
    ("white_space", "You help.{}", [" ", "\n", "\n\n"]),
    ("white_space", "You help.{}", [" ", "\u00a0", "\t"]),
    ("separator", "You help.\n{}\n", ["---", "***", "===="]),
    ("separator", "Rules {} ", [":", "–", "-"]),
    ("variable", "Think of {} first. ", ["a cat", "two horses and a cow", "the sea"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "values"), VALUES, ids=[f"{k}-{v[0]!r}" for k, _, v in VALUES])
def test_a_value_before_the_stable_text(run, kind, text, values) -> None:
    prompts = chats(*[text.format(value) + RULES for value in values])
    report = run(prompts)
    assert kinds(report) == [kind]
    (finding,) = report.findings
    assert finding.num_prompts == 2
    rules = run(chats(RULES, RULES)).reusable_tokens
    assert abs(finding.tokens_lost - 2 * rules) < 2 * NEAR
    assert report.mended_tokens > 0.8 * 2 * rules
    (shown,) = finding.examples
    if kind not in ("white_space", "separator"):
        assert any(value in shown.earlier_value or shown.earlier_value in value for value in values)
    assert shown.where == "message 1 (system)"
    assert 3 <= shown.position < NEAR


@pytest.mark.parametrize(("kind", "text", "values"), VALUES, ids=[f"{k}-{v[0]!r}" for k, _, v in VALUES])
def test_the_same_value_behind_the_stable_text_is_no_finding(run, kind, text, values) -> None:
    assert kinds(run(chats(*[f"{RULES}\n\n{text.format(value)}" for value in values]))) == []
    assert kinds(run([chat(RULES, f"{q} {text.format(v)}") for v, q in zip(values, QUESTIONS, strict=False)])) == []


def test_a_short_text_without_roles(run) -> None:
    texts = [
        f"Today is {day} March 2026. You are the help desk of ACME. Answer briefly, from the handbook."
        for day in (3, 4)
    ]
    assert kinds(run(texts)) == ["date"]
    assert (
        kinds(
            run(
                [
                    f"{RULES}\n\nQuestion: my order of {day} March, is it on its way to the shop or not?"
                    for day in (3, 4)
                ]
            )
        )
        == []
    )


def test_the_position_is_the_first_token_that_differs(run, space) -> None:
    texts = [f"Use the date {day}. {RULES}" for day in ("2026-03-03", "2026-04-03")]
    report = run(chats(*texts))
    tokens = [space.encode(space.render(render_of(chats(t)[0])), is_rendered=True).ids.tolist() for t in texts]
    first = next(i for i, (a, b) in enumerate(zip(*tokens, strict=False)) if a != b)
    assert report.findings[0].examples[0].position == first


def render_of(row):
    from cachestack.requests import as_messages

    return as_messages(row["messages"])


def test_a_block_of_metadata_is_taken_apart(run) -> None:
    heads = [
        f"Date: 2026-03-0{i + 1}\nUser: {name}\nSession: {hexes(i)}\nLanguage: {language}\nPlan: {plan}\n"
        for i, (name, language, plan) in enumerate([("Ana", "fr", "gold"), ("Zoé", "en", "free"), ("Li", "de", "pro")])
    ]
    report = run(chats(*[head + RULES for head in heads]))
    assert kinds(report) == ["date", "user_name", "identifier", "language", "metadata"]
    lost = [finding.tokens_lost for finding in report.findings]
    assert lost == sorted(lost, reverse=True), "what stands earlier has more behind it"
    assert report.mended_tokens - report.reusable_tokens <= lost[0]


def test_values_close_together_are_taken_apart(run) -> None:
    report = run(chats(*[f"Ticket #481{i} of March {i + 1}, 2026 at 1{i}:05. {RULES}" for i in range(3)]))
    assert sorted(kinds(report)) == ["counter", "timestamp"]


def test_a_user_known_from_the_log_is_recognised_in_any_place(run) -> None:
    prompts = [
        chat(f"Profile of {user}: gold. {RULES}", q, user=f"{user}@example.com")
        for user, q in zip(("karl", "zoé", "li-na"), QUESTIONS, strict=False)
    ]
    assert kinds(run(prompts)) == ["user_name"]


TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"Does {name} for the customer", "parameters": {}}}
    for name in ("pay", "refund", "ship")
]
SHOTS = [
    ("My card was declined and I need help", "billing"),
    ("L'application se ferme quand je l'ouvre", "technical"),
    ("How do I change the address of my account", "account"),
    ("Are you hiring people at the moment", "other"),
]
ORDERS = [(0, 1, 2, 3), (2, 0, 3, 1), (3, 2, 1, 0)]


def test_tools_in_another_order(run) -> None:
    prompts = [
        chat(RULES, q, tools=[TOOLS[i] for i in order])
        for order, q in zip([(0, 1, 2), (1, 0, 2), (2, 1, 0)], QUESTIONS, strict=False)
    ]
    report = run(prompts)
    assert kinds(report) == ["tool_order"]
    assert report.findings[0].examples[0].where == "the tools"
    assert kinds(run([chat(RULES, q, tools=TOOLS) for q in QUESTIONS])) == []


def test_keys_of_a_tool_in_another_order(run) -> None:
    turned = [dict(reversed(tool.items())) for tool in TOOLS]
    prompts = [chat(RULES, q, tools=t) for t, q in zip([TOOLS, turned, TOOLS], QUESTIONS, strict=False)]
    assert kinds(run(prompts[:2])) == ["key_order"]


def test_other_tools_each_time(run) -> None:
    prompts = [chat(RULES, q, tools=[TOOLS[i], TOOLS[2]]) for i, q in zip((0, 1, 0), QUESTIONS, strict=False)]
    assert kinds(run(prompts)) == ["tool_set"]


def test_json_with_its_keys_in_another_order(run) -> None:
    profile = {"name": "Ana", "plan": "gold", "address": {"city": "Nîmes", "zip": "30000"}}
    texts = [json.dumps(dict(sorted(profile.items(), key=lambda item: item[0][n]))) for n in (0, 1, 2)]
    assert len(set(texts)) == 3
    assert kinds(run(chats(*[f"Profile: {text}\n{RULES}" for text in texts]))) == ["key_order"]
    other = [text.replace("gold", plan) for text, plan in zip(texts, ("gold", "free", "team"), strict=True)]
    assert "key_order" not in kinds(run(chats(*[f"Profile: {text}\n{RULES}" for text in other])))


def test_examples_in_another_order_as_messages(run) -> None:
    def prompt(order, question):
        shots = [{"role": r, "content": c} for i in order for r, c in zip(("user", "assistant"), SHOTS[i], strict=True)]
        system = {"role": "system", "content": "Name the topic of each message in one word, please."}
        return {"messages": [system, *shots, {"role": "user", "content": question}]}

    report = run([prompt(order, q) for order, q in zip(ORDERS, QUESTIONS, strict=False)])
    assert kinds(report) == ["example_order"]
    assert kinds(run([prompt(ORDERS[1], q) for q in QUESTIONS])) == []


@pytest.mark.parametrize("mark", ["\n\n", "\n"])
def test_examples_in_another_order_as_text(run, mark) -> None:
    prompts = [
        f"Name the topic.{mark}"
        + mark.join(f"Ticket: {SHOTS[i][0]} -> {SHOTS[i][1]}" for i in order)
        + f"{mark}Ticket: {q} ->"
        for order, q in zip(ORDERS, QUESTIONS, strict=False)
    ]
    assert kinds(run(prompts)) == ["example_order"]


def test_a_date_that_the_chat_template_wrote(run) -> None:
    head = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
    prompts = [
        f"{head}Today Date: {day} Jul 2024\n\n{RULES}<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{q}"
        for day, q in zip((26, 27, 28), QUESTIONS, strict=False)
    ]
    assert kinds(run(prompts)) == ["template_date"]


def test_the_question_before_the_instructions(run) -> None:
    report = run([f"{q}\n\n{RULES}" for q in QUESTIONS])
    assert kinds(report) == ["variable"]
    assert report.reusable_tokens == 0
    assert report.mended_share > 0.7


DOCUMENT = ["river", "stone", "garden", "wooden", "table", "chair", "oak", "delivery", "soft", "light", "market"]


@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: {"messages": [{"role": "user", "content": text}]}])
@pytest.mark.parametrize("num_words", [80, 900])
def test_instructions_behind_documents_of_any_length(run, wrap, num_words) -> None:
    draw = random.Random(1)
    texts = []
    for question in QUESTIONS:
        paragraphs = [" ".join(draw.choices(DOCUMENT, k=num_words)).capitalize() + "." for _ in range(2)]
        texts.append("\n\n".join([*paragraphs, RULES, f"Question: {question}"]))
    report = run([wrap(text) for text in texts])
    assert kinds(report) == ["variable"]
    rules = run(2 * [f"{RULES}\n\nQuestion:"]).reusable_tokens
    assert abs(report.findings[0].tokens_lost - (len(QUESTIONS) - 1) * rules) < NEAR
    assert report.findings[0].examples[0].after.strip("⏎").startswith("When a customer")


@pytest.mark.parametrize("who", ["User", "Customer", "Utilisateur "])
def test_what_somebody_says_is_not_their_name(run, who) -> None:
    assert kinds(run([f"{who}: {q}\n\n{RULES}" for q in QUESTIONS])) == ["variable"]
