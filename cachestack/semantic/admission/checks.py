"""Check digits and shapes of numbers that belong to somebody. Pure arithmetic; written here because it is a few lines
each, where a library for them is large or under the LGPL."""

from __future__ import annotations

from collections import Counter
from math import log2

_CARD_LENGTHS = {"3": (14, 15, 16), "4": (13, 16, 19), "5": (16,), "2": (16,), "6": (16, 17, 18, 19)}
IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18,
    "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24,
    "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24,
    "XK": 20,
}  # fmt: skip


def is_card(digits: str) -> bool:
    """A payment card's number: issuer, length, and the last digit by Luhn. Not all of one digit."""
    if len(digits) not in _CARD_LENGTHS.get(digits[:1], ()) or len(set(digits)) < 2:
        return False
    if (digits[0] == "3" and digits[1] not in "04567") or (digits[0] == "5" and digits[1] not in "12345"):
        return False
    if digits[0] == "2" and not "2221" <= digits[:4] <= "2720":
        return False
    return luhn(digits)


def luhn(digits: str) -> bool:
    """ISO/IEC 7812-1: every second digit from the right doubled, digits added up, a multiple of ten."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def is_iban(text: str) -> bool:
    """ISO 13616: the country's length, and 1 modulo 97."""
    if IBAN_LENGTHS.get(text[:2]) != len(text) or not text.isalnum():
        return False
    return int("".join(str(int(c, 36)) for c in text[4:] + text[:4])) % 97 == 1


def is_nir(text: str) -> bool:
    """A French social security number of 15 characters: sex, month, department, key of 97."""
    if len(text) != 15 or text[0] not in "12378" or not (text[:5] + text[7:]).isdigit():
        return False
    month, department = int(text[3:5]), text[5:7]
    if not (1 <= month <= 12 or 20 <= month <= 42 or 50 <= month <= 99):
        return False
    offset = {"2A": 1_000_000, "2B": 2_000_000}.get(department.upper(), 0)
    body = text[:13].upper().replace("2A", "20").replace("2B", "20") if offset else text[:13]
    return body.isdigit() and 97 - (int(body) - offset) % 97 == int(text[13:])


def is_ssn(area: str, group: str, serial: str) -> bool:
    """A number that the US Social Security Administration may have given out."""
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def is_dni(number: str, letter: str) -> bool:
    """A Spanish DNI or NIE: the letter by 23."""
    digits = number.upper().translate(str.maketrans("XYZ", "012"))
    return digits.isdigit() and "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23] == letter.upper()


def bits_per_character(text: str) -> float:
    """Shannon's entropy of the characters of `text`."""
    counts = Counter(text)
    return -sum(n / len(text) * log2(n / len(text)) for n in counts.values()) if text else 0.0
