"""Personal data in a text, by known kinds: cards, accounts, national numbers, e-mail addresses, telephones.

What is public is none: an organisation's own mailbox (`support@`), a free telephone number, an address set aside for
examples.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from cachestack.semantic.admission import checks
from cachestack.semantic.admission.reading import words_of
from cachestack.semantic.admission.secrets import Found

_RUN = re.compile(r"\d(?:[ .()/-]{0,2}\d){5}")
"""What all numbers of digits alone have in them."""

_DIGITS = re.compile(r"(?<![\w.,/-])(?:\d[ -]?){12,18}\d(?![\w-]|[.,]\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}[A-Z0-9 -]{11,42}")
_NIR = re.compile(r"(?<!\d)[12378] ?\d{2} ?\d{2} ?(?:\d{2}|2[ABab]) ?\d{3} ?\d{3} ?\d{2}(?!\d)")
_SSN = re.compile(r"(?<![\w-])(\d{3})-(\d{2})-(\d{4})(?![\w-])")
_NINO = re.compile(r"\b[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D]\b")
_DNI = re.compile(r"\b([XYZ]?\d{7,8})-?([A-Z])\b")
_CODICE = re.compile(r"\b[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]\b")
_EMAIL = re.compile(r"(?<![\w.+-])([A-Za-z0-9][A-Za-z0-9._%+-]{0,63})@((?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24})\b")
_PHONES = (
    re.compile(r"(?<![\w+])(?:\+|00)[1-9](?:[ .-]?\(?\d\)?){7,14}(?![\w]|[.,-]\d)"),
    re.compile(r"(?<![\w.,+-])0[1-9](?:[ .-]?\d{2}){4}(?![\w]|[.,-]\d)"),
    re.compile(r"(?<![\w.,+-])(?:1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[.-])[2-9]\d{2}[ .-]\d{4}(?![\w]|[.,-]\d)"),
    re.compile(r"(?<![\w.,+-])0[127]\d{2,4} \d{3,4} ?\d{3,4}(?![\w]|[.,-]\d)"),
)
_FREE = (
    "1800",
    "1888",
    "1877",
    "1866",
    "1855",
    "1844",
    "1833",
    "800",
    "888",
    "877",
    "866",
    "855",
    "844",
    "833",
    "0800",
    "0805",
    "0809",
    "33800",
    "33805",
    "33809",
    "080",
    "081",
    "082",
    "089",
    "44800",
    "3380",
    "3381",
    "3382",
    "3389",
    "00800",
)
_PUBLIC_MAILBOXES = words_of(
    "support help info contact sales hello hi office admin service services billing accounts accounting press media "
    "jobs careers recruitment hr privacy dpo legal abuse security noreply no-reply donotreply do-not-reply "
    "newsletter webmaster postmaster feedback team enquiries inquiries enquiry booking bookings reservations "
    "reservation orders order returns refunds customer customers customercare customerservice customer-service "
    "customer.service care helpdesk help-desk it itsupport it-support payroll finance marketing partners compliance "
    "reception frontdesk shop store library registrar admissions events claims aide assistance accueil commande "
    "commandes retours remboursements facturation comptabilite recrutement presse rh rgpd dpd serviceclient "
    "service-client service.client clients client relationclient reclamations reclamation commercial ventes "
    "secretariat mairie direction boutique sav technique reservations inscription inscriptions scolarite bonjour "
    "formation"
)
_EXAMPLE_DOMAINS = (
    "example.com",
    "example.org",
    "example.net",
    "exemple.com",
    "exemple.fr",
    "example.fr",
    "test.com",
    "domain.com",
    "yourdomain.com",
    "company.com",
    "email.com",
    "mail.com.example",
)
_IP = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_NEAR_IP = re.compile(
    r"\b(?:ip|ipv4|address|adresse|connexion|connection|login|logged|from|depuis|visiteur|visitor|client)\b",
    re.IGNORECASE,
)
_RESOLVERS = frozenset({"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9", "208.67.222.222", "208.67.220.220"})
_BIRTH = re.compile(
    r"\b(?:my (?:date of birth|birth ?day|dob)|i was born (?:on|in)|ma date de naissance|je suis n[ée]e? (?:le|en)|"
    r"mon anniversaire|(?:date of birth|dob|date de naissance|n[ée]e? le)\s?:)\s?(?:is |est |c'est |le |on |the |"
    r": ?)?"
    r"(\d{1,4}[ /.-](?:\d{1,2}|[a-zéû]{3,9})[ /.-]\d{2,4}|(?:\d{1,2}(?:st|nd|rd|th|er)? )?[a-zéû]{3,9} \d{1,2}(?:st|"
    r"nd|rd|th)?,? \d{4}|\d{1,2}(?:st|nd|rd|th|er)? (?:of )?[a-zéû]{3,9},? \d{4})",
    re.IGNORECASE,
)
_LABELLED = re.compile(
    r"\b(?i:passport|passeport|driver'?s? licen[cs]e|driving licen[cs]e|permis de conduire|identity card|id card|"
    r"carte (?:nationale )?d'identit[ée]|cni|titre de s[ée]jour|national id|tax id|tin|num[ée]ro fiscal|nif|"
    r"social security|s[ée]curit[ée] sociale|ssn|"
    r"(?:bank )?account (?:number|no)|compte bancaire|sort code|rib|carte vitale|health card)"
    r"(?i: (?:number|no\.?|num[ée]ro|n°|id|num))?\s?(?i:is|est|:|=|#|n°|no\.?|number)?\s?(?i:is |est |"
    r": ?)?([A-Z]{0,3}\d(?:[ -]?[A-Z0-9]){5,19})\b"
)


_BIRTH_NAMES = ("born", "birth", "dob", "naissance", " né", "anniversaire")
_ID_NAMES = (
    *(
        "passport",
        "passeport",
        "licen",
        "permis de",
        "identi",
        "id card",
        "cni",
        "titre de s",
        "national id",
        "tax id",
        "tin ",
    ),
    *("fiscal", "nif", "social", "ssn", "account n", "bancaire", "sort code", "rib", "vitale", "health card"),
)


def find_personal(text: str) -> Iterator[Found]:
    """In no particular order; a value may come twice under two kinds."""
    if "@" in text:
        for found in _EMAIL.finditer(text):
            if not _is_public_mailbox(found.group(1), found.group(2)):
                yield Found("email", found.group().lower())
    if not any(c.isdigit() for c in text):
        return
    yield from _lettered(text)
    if _RUN.search(text):
        yield from _numbers(text)
        yield from _phones(text)
    for found in _IP.finditer(text):
        if _is_personal_address(found, text):
            yield Found("ip_address", found.group())
    lower = text.lower()
    for pattern, kind, names in ((_BIRTH, "date_of_birth", _BIRTH_NAMES), (_LABELLED, "id_number", _ID_NAMES)):
        for found in pattern.finditer(text) if any(name in lower for name in names) else ():
            if len(digits_of(found.group(1))) >= 4:
                yield Found(kind, found.group(1))


def _lettered(text: str) -> Iterator[Found]:
    for found in _IBAN.finditer(text):
        bare = found.group().replace(" ", "").replace("-", "")
        bare = bare[: checks.IBAN_LENGTHS.get(bare[:2], 0)]
        if checks.is_iban(bare):
            yield Found("iban", bare)
    for found in _CODICE.finditer(text):
        yield Found("national_id", found.group())


def _numbers(text: str) -> Iterator[Found]:
    for found in _DIGITS.finditer(text):
        if checks.is_card(digits_of(found.group())):
            yield Found("payment_card", digits_of(found.group()))
    for found in _NIR.finditer(text):
        if checks.is_nir(found.group().replace(" ", "")):
            yield Found("national_id", found.group().replace(" ", ""))
    for found in _SSN.finditer(text):
        if checks.is_ssn(*found.groups()):
            yield Found("national_id", found.group())
    for found in _NINO.finditer(text):
        yield Found("national_id", found.group().replace(" ", ""))
    for found in _DNI.finditer(text):
        if len(found.group(1)) == 8 and checks.is_dni(*found.groups()):
            yield Found("national_id", found.group())


def _phones(text: str) -> Iterator[Found]:
    for pattern in _PHONES:
        for found in pattern.finditer(text):
            digits = digits_of(found.group()).removeprefix("00")
            if (
                9 <= len(digits) <= 15
                and not digits.startswith(_FREE)
                and len(set(digits[-8:])) > 2
                and "555-01" not in found.group()
            ):
                yield Found("phone", digits)


def digits_of(text: str) -> str:
    return "".join(c for c in text if c.isdigit())


def _is_public_mailbox(name: str, domain: str) -> bool:
    local = name.lower().split("+")[0]
    first, *rest = re.split(r"[._-]", local)
    is_role = local in _PUBLIC_MAILBOXES or (
        first in _PUBLIC_MAILBOXES and all(part in _PUBLIC_MAILBOXES or len(part) <= 4 for part in rest)
    )
    return is_role or domain.lower().endswith((*_EXAMPLE_DOMAINS, ".example", ".test", ".invalid", ".local"))


def _is_personal_address(found: re.Match[str], text: str) -> bool:
    try:
        address = ipaddress.IPv4Address(found.group())
    except ValueError:
        return False
    if not address.is_global or found.group() in _RESOLVERS:
        return False
    return _NEAR_IP.search(text[max(0, found.start() - 40) : found.start()]) is not None
