"""Two answers to one question: forms, numbers, labels, lists, code, and free text."""

from __future__ import annotations

import pytest

from cachestack.answers import Sameness, compare

SAME = {
    "letter for letter": (None, "Lima", "Lima", "exact"),
    "Markdown and punctuation": ("Capital of Peru?", "Lima", "**Lima**!", "normalised"),
    "a polite frame": ("Capital of Peru?", "Lima", "Sure! The answer is: Lima. I hope this helps!", "normalised"),
    "a French frame": ("Capitale du Pérou ?", "Lima", "Bien sûr, la réponse est : Lima. Bonne journée !", "normalised"),
    "white space and lines": (None, "one\r\ntwo  three", "one two three", "normalised"),
    "a label": ("Classify.", "billing", "Category: **Billing**.", "label"),
    "a French label": ("Quel sentiment ?", "négatif", "Sentiment : Négatif", "label"),
    "yes, with a reason": ("Is 17 prime?", "Yes.", "Yes, 17 is a prime number.", "label"),
    "yes, said by a sentence": ("Is smoking allowed?", "No.", "Smoking is not allowed anywhere.", "label"),
    "two refusals": ("Which stock?", "I'm sorry, I can't advise on stocks.", "I cannot recommend stocks.", "label"),
    "thousands": ("15% of 8,000?", "1,200", "The answer is 1200.", "numeric"),
    "thousands, short": (None, "1.2k", "1200", "numeric"),
    "French decimals": ("Quel prix ?", "1 200,5 €", "Le prix est de 1200,50 euros.", "numeric"),
    "units of one kind": ("How heavy?", "1.5 kg", "It is 1500 grams.", "numeric"),
    "euros and cents": ("Prix ?", "49,90 €", "49 euros et 90 centimes", "numeric"),
    "a power of ten": ("How far?", "150 million km", "1.5 × 10^8 kilometres", "numeric"),
    "a unit that no list has": ("What dose?", "5 µg", "The dose is 5 mcg.", "numeric"),
    "a date": ("When?", "3 March 2026", "It is on 2026-03-03.", "numeric"),
    "a time": ("Fermeture ?", "17 h 30", "17:30", "numeric"),
    "a number in words": ("Combien ?", "18", "Dix-huit.", "numeric"),
    "a list in another order": ("Colours?", "Red, yellow and blue.", "- Blue\n- Red\n- Yellow", "list"),
    "JSON": (None, '{"a": 1, "b": [true]}', '```json\n{"b": [true],\n "a": 1.0}\n```', "normalised"),
    "code": (
        None,
        "```\ndef f(a):\n    return a\n```",
        "Here it is:\n```python\ndef f(a):\n\n  return a\n```",
        "normalised",
    ),
    "code, set as such or not": ("Sum?", "sum(numbers)", "```python\nsum(numbers)\n```", "normalised"),
    "another wording": (
        "How do I contact support?",
        "You can reach support by e-mail at help@northwind.example.",
        "Support can be reached by e-mail at help@northwind.example.",
        "meaning",
    ),
    "extra detail": (
        "Do you ship to Norway?",
        "We ship to Norway.",
        "We ship to Norway. Delivery takes about five working days and customs fees may apply.",
        "meaning",
    ),
}
DIFFERENT = {
    "an empty answer": ("Why?", "", "Because.", "normalised"),
    "yes and no": ("Is 21 prime?", "Yes", "No, 21 is 3 times 7.", "label"),
    "oui et non": ("Puis-je payer en trois fois ?", "Oui, sans frais.", "Non, en une seule fois.", "label"),
    "of course, and no": ("Can I come?", "Of course, you can come.", "No, you can't.", "label"),
    "it is, it isn't": ("Is it free?", "It is.", "It isn't. The entry costs 5 euros.", "label"),
    "a refusal": ("How many tablets?", "Three a day.", "I'm sorry, but I can't give medical advice.", "label"),
    "un refus": ("Quel dosage ?", "1 g par jour.", "Désolé, je ne peux pas donner d'avis médical.", "label"),
    "a word": ("Capital of Australia?", "Canberra", "Sydney", "label"),
    "a number": ("15% of 8,000?", "1,200", "1,250", "numeric"),
    "a version": ("Which Python version?", "3.1", "3.10", "numeric"),
    "a longer version": ("Node version?", "Use 20.11.1, as CI does.", "Use 22.11.0, as CI does.", "numeric"),
    "a unit that no list has": ("What dose?", "5 mg", "5 µg a day", "numeric"),
    "two units that no list has": ("What dose?", "100 000 UI", "100 000 µg", "numeric"),
    "bytes and bits": ("How fast?", "100 Mbit/s", "100 MB/s", "numeric"),
    "degrees": ("How hot?", "200 °C", "200 °F", "numeric"),
    "a currency": ("Price?", "40 euros", "40 dollars", "numeric"),
    "working days": ("How long?", "21 days", "21 working days", "numeric"),
    "a number in a sentence": (
        "How do refunds work?",
        "Send the parcel back. Refunds are paid within 14 days, by card.",
        "Send us the parcel. Then wait for a message. You get the refund within 30 days, on the card you paid with.",
        "meaning",
    ),
    "a day": ("Closed when?", "We are closed on Mondays.", "The shop is closed on Tuesday.", "numeric"),
    "a negation": (None, "You can cancel after shipping.", "You cannot cancel after shipping.", "meaning"),
    "une négation": (None, "La garantie couvre la casse.", "La garantie ne couvre pas la casse.", "meaning"),
    "a prefix that negates": (None, "The fee is refundable.", "The fee is non-refundable.", "meaning"),
    "an opposite": ("Which way?", "Turn it clockwise.", "Turn it anticlockwise.", "meaning"),
    "a name": ("Who painted it?", "It was painted by Pablo Picasso.", "It was painted by Salvador Dalí.", "meaning"),
    "a name in a sentence": (
        "Who do I ask for leave?",
        "Send the form to Maria Keller in Human Resources and keep a copy for yourself.",
        "Please send the form to Tom Adebayo in Human Resources, and keep a copy.",
        "meaning",
    ),
    "a command": ("How?", "Run `git branch -d name`.", "Run `git branch -m name`.", "meaning"),
    "an option": ("How?", "ls -a", "ls -r", "meaning"),
    "a missing item": ("What for?", "A passport, a photo and a form.", "A passport and a form.", "list"),
    "a missing bullet": (None, "- Red\n- Yellow\n- Blue", "- Red\n- Blue", "list"),
    "steps in another order": (
        "How do I reset it?",
        "1. Unplug it.\n2. Wait 30 seconds.\n3. Plug it in again.",
        "1. Wait 30 seconds.\n2. Unplug it.\n3. Plug it in again.",
        "list",
    ),
    "first and then": (
        "How do I install it?",
        "First stop the service, then run the migration.",
        "First run the migration, then stop the service.",
        "list",
    ),
    "an order that is asked for": ("In what order?", "Anna, Bob, Cleo", "Bob, Anna, Cleo", "list"),
    "JSON, true and 1": (None, '{"a": true}', '{"a": 1}', "normalised"),
    "JSON, a key": (None, '{"a": 1}', '{"b": 1}', "normalised"),
    "JSON, a text in it": (None, '{"a": "40 euros"}', '{"a": "50 euros"}', "numeric"),
}
UNKNOWN = {
    "other words for much": (
        "How do I reset my password?",
        'Click "Forgot password" on the login page, enter your address and follow the link we send you.',
        'Go to the sign-in page, choose "Forgot password" and type your address: a link to a new one comes by mail.',
    ),
    "two languages": (
        "What is it?",
        "The price of the ticket depends on the season and on your age.",
        "Le prix du billet dépend de la saison et de votre âge, selon les cas.",
    ),
    "a word in another's place": (
        "Why is it closed?",
        "The museum is closed on Monday because of building work.",
        "The museum is closed on Monday because of a flood.",
    ),
    "a word in another's place in a long sentence": (
        "Where do I hand it in?",
        "You hand the signed form in at the counter on the ground floor of the town hall and keep the receipt.",
        "You hand the signed form in at the window on the ground floor of the town hall and keep the receipt.",
    ),
    "a condition more": (None, "Delivery is free.", "Delivery is free if you order online."),
    "longer code": (None, "```\na = 1\nb = 2\n```", "```\na = 1\nb = 3\n```"),
    "JSON, a longer text": (None, '{"why": "it is late and dark"}', '{"why": "it is late if you wait for long"}'),
    "the question's words alone": (
        "How do I remove a red wine stain from a carpet?",
        "A red wine stain is on the carpet.",
        "A red wine stain on the carpet is a shame. It can be sold.",
    ),
    "no words": (None, "the", "a"),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same(name: str) -> None:
    question, x, y, by = SAME[name]
    found = compare(x, y, question)
    assert (found.same, found.by) == (True, by), found


@pytest.mark.parametrize("name", DIFFERENT)
def test_different(name: str) -> None:
    question, x, y, by = DIFFERENT[name]
    found = compare(x, y, question)
    assert (found.same, found.by) == (False, by), found
    assert {"differs"} <= set(found.evidence)


@pytest.mark.parametrize("name", UNKNOWN)
def test_not_known(name: str) -> None:
    question, x, y = UNKNOWN[name]
    assert compare(x, y, question).same is None, compare(x, y, question)


def test_extra_detail_lowers_the_score() -> None:
    question, x, y, _ = SAME["extra detail"]
    assert compare(x, y, question).score < compare(x, x + " We really do.", question).score <= 1


def test_truth_misleads_nobody() -> None:
    for same in (True, False, None):
        with pytest.raises(TypeError, match="three outcomes"):
            bool(Sameness(same, "exact", 1.0))


def test_evidence_keeps_its_sides() -> None:
    one, other = compare("40 euros", "50 euros", "Price?"), compare("50 euros", "40 euros", "Price?")
    assert (one.evidence["x"], one.evidence["y"]) == ("40", "50")
    assert (other.evidence["x"], other.evidence["y"]) == ("50", "40")


def test_what_the_question_names_is_no_news() -> None:
    assert compare("Canberra.", "The capital of Australia is Canberra.", "What is the capital of Australia?").same
    assert compare("5", "12 minus 7 is 5.", "What is 12 minus 7?").same is True


@pytest.mark.parametrize("polite", ["Unfortunately, you cannot cancel.", "I'm sorry that it broke. You get a new one."])
def test_a_no_to_the_customer_is_no_refusal_to_answer(polite: str) -> None:
    assert compare(polite, "You can cancel until noon.", "Can I cancel?").evidence.get("differs") != "refusal"


def test_what_cannot_be_read_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("cachestack.answers.comparing.compare_meaning", broken)
    found = compare("It opens at the north gate.", "The gate in the north is where it opens.", "Where?")
    assert (found.same, found.evidence) == (None, {"unknown": "RecursionError: too deep"})
