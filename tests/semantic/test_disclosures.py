"""Secrets and personal data by known kinds, and what is public."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.semantic.admission.checks import bits_per_character, is_card, is_dni, is_iban, is_nir, luhn
from cachestack.semantic.admission.disclosures import personal_data_in, secrets_in

RANDOM = "".join(random.Random(7).choices("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=64))
SECRETS = [
    ("aws_key", "AKIA" + "Q3EGVX5JW2RT7KLM"),
    ("github_token", "ghp_" + RANDOM[:36]),
    ("openai_key", "sk-proj-" + RANDOM[:40]),
    ("anthropic_key", "sk-ant-api03-" + RANDOM[:40]),
    ("stripe_key", "sk_live_" + RANDOM[:24]),
    ("slack_token", "xoxb-1234567890-" + RANDOM[:24]),
    ("google_key", "AIza" + RANDOM[:35]),
    ("private_key", "-----BEGIN RSA PRIVATE KEY-----\nMIIE"),
    ("jwt", f"eyJhbGciOiJIUzI1NiJ9.eyJ{RANDOM[:30]}.{RANDOM[30:60]}"),
    ("connection_string", "postgres://admin:h4rdToGuess@db.acme.internal:5432/shop"),
    ("password", "my password is Tr0ub4dor!"),
    ("password", "mot de passe : Soleil2024"),
    ("password", "mon mot de passe est citrouille."),
    ("credential", f"client_secret = {RANDOM[:32]}"),
]
NO_SECRETS = [
    "My password is wrong, what now?",
    "The password is required and must have 12 characters.",
    "Mon mot de passe est oublié.",
    "Set api_key = 'YOUR_API_KEY_GOES_HERE'",
    "export OPENAI_API_KEY=sk-your-key-here-0000000000",
    "AKIAIOSFODNN7EXAMPLE is the key in the docs",
    "postgres://user:password@localhost/example",
    "password = os.environ['PASSWORD']",
    "The token is sent in the Authorization header.",
    "Choose 'Reset password' and enter the code.",
]
PERSONAL = [
    ("payment_card", "my card 4111 1111 1111 1111 was declined"),
    ("payment_card", "carte 5500-0000-0000-0004"),
    ("iban", "IBAN FR76 3000 6000 0112 3456 7890 189"),
    ("iban", "send it to DE89370400440532013000 today"),
    ("national_id", "mon numéro est 2 55 08 14 168 025 38"),
    ("national_id", "SSN 123-45-6789"),
    ("email", "write to jane.doe@gmail.com"),
    ("phone", "call me on +33 6 12 34 56 78"),
    ("phone", "mon portable : 06 12 34 56 78"),
    ("phone", "my number is (212) 664-7665"),
    ("ip_address", "someone logged in from 81.56.12.7"),
    ("date_of_birth", "my date of birth is 12/03/1981"),
    ("date_of_birth", "je suis née le 3 avril 1990"),
    ("id_number", "my passport number is 12AB34567"),
]
PUBLIC = [
    "write to support@acme.com",
    "contact.fr@acme.com",
    "jane@example.com",
    "call 1-800-555-0199 or 0 805 123 456",
    "use the resolver 8.8.8.8",
    "version 81.56.12.7 of the driver",
    "order 4111 1111 1111 1112",
    "Victor Hugo est né le 26 février 1802",
    "on 2024-05-12 at 10:30:45, 1,234,567.89 euros",
    "ISBN 978-3-16-148410-0",
    "1234567890123456",
    "GB00 WEST 1234 5698 7654 32",
]


@pytest.mark.parametrize(("kind", "text"), SECRETS, ids=[kind for kind, _ in SECRETS])
def test_secrets_are_found_in_question_and_answer(kind: str, text: str) -> None:
    asked = secrets_in(f"Why does {text} fail?", "It has expired.", ())
    assert (asked.kinds, asked.where) == ((kind,), ("question",)) or kind in asked.kinds
    said = secrets_in("Which one?", f"It is this one: {text}", ())
    assert said.where == ("answer",)
    assert text not in repr(said)


@pytest.mark.parametrize("text", NO_SECRETS)
def test_talk_about_secrets_is_none(text: str) -> None:
    assert secrets_in(text, text, ()) is None


@pytest.mark.parametrize(("kind", "text"), PERSONAL, ids=[text for _, text in PERSONAL])
def test_personal_data_is_found(kind: str, text: str) -> None:
    assert kind in personal_data_in(text, "", ()).kinds
    assert kind in personal_data_in("", text, ()).kinds


@pytest.mark.parametrize("text", PUBLIC)
def test_what_is_public_or_no_such_number_is_none(text: str) -> None:
    assert personal_data_in(text, text, ()) is None


def test_what_the_system_prompt_says_is_everybodys() -> None:
    system = (
        "You are Acme's desk. Write to paul@acme.com or call +33 1 23 45 67 89. The demo key is sk_live_" + RANDOM[:24],
    )
    assert personal_data_in("How do I reach you?", "Paul@acme.com or 01 23 45 67 89.", system) is None
    assert secrets_in("Which key?", "sk_live_" + RANDOM[:24], system) is None
    assert personal_data_in("How do I reach you?", "rita@acme.com", system).kinds == ("email",)


def test_a_list_of_what_is_public() -> None:
    assert personal_data_in("", "rita@acme.com or 01 23 45 67 89", (), ("*@acme.com", "+33 1 23 45 67 89")) is None
    assert personal_data_in("", "rita@acme.com.evil.io", (), ("*@acme.com",)).kinds == ("email",)


@given(st.integers(10**14, 10**15 - 1))
def test_luhn_takes_one_last_digit_of_ten(body: int) -> None:
    assert sum(luhn(f"{body}{digit}") for digit in range(10)) == 1


@given(st.integers(0, 10**10 - 1), st.integers(1, 98))
def test_an_iban_with_another_key_is_none(account: int, off: int) -> None:
    bban = f"37040044{account:010d}"
    key = 98 - int(f"{bban}131400") % 97
    assert is_iban(f"DE{key:02d}{bban}")
    assert not is_iban(f"DE{(key + off) % 97 or 97:02d}{bban}") or (key + off) % 97 == key % 97


def test_national_numbers_and_entropy() -> None:
    assert is_nir("255081416802538")
    assert not is_nir("255081416802539")
    assert is_dni("12345678", "Z")
    assert not is_dni("12345678", "A")
    assert not is_card("0000000000000000")
    assert bits_per_character("aaaa") == 0
    assert bits_per_character("abcd") == 2
