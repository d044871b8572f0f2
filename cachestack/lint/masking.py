"""Hiding secrets in what is shown of a prompt. Characters are replaced one for one, so that positions stay."""

from __future__ import annotations

import re

MASK = "•"
SECRETS = (
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
    re.compile(r"\b(?:sk|pk|rk|ak|ghp|gho|ghs|ghu|glpat|xox[abprs]|hf|AIza|github_pat|npm|pypi)[-_]?[\w-]{12,}"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}"),
    re.compile(r"(?i)\b(?:bearer|basic)\s+([\w.~+/=-]{8,})"),
    re.compile(
        r"(?i)(?<![^\W_])(?:password|passwd|passphrase|pwd|mot de passe|mdp|secret|api[ _-]?key|private[ _-]?key"
        r"|cl[ée] (?:d['’])?api|cl[ée] (?:secr[èe]te|priv[ée]e)|token|jeton|authorization|credential|cookie"
        r"|identifiant de connexion|code pin|pin code)s?(?:[ _-](?:key|token|value|d['’]acc[èe]s|d['’]api))?"
        r"[\"'`]?\s*(?:[:=]|is|est)\s*[\"'`]?([^\s\"'`,;]{4,})"
    ),
    re.compile(r"://[^\s/:@]*:([^\s/@]+)@"),
    re.compile(r"\bSG\.[\w-]{12,}\.[\w-]{12,}"),
    re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END|\Z)"),
    re.compile(r"\b(?:\d[ -]?){15,19}\b"),
    re.compile(r"(?<![\w/+-])(?=[\w/+-]*[a-z])(?=[\w/+-]*[A-Z])(?=[\w/+-]*\d)[\w/+-]{24,}={0,2}"),
)
WINDOW = 400


def masked(text: str, start: int, end: int) -> str:
    """The characters `start` to `end`, secrets hidden, also those that only reach into them."""
    low, high = max(0, start - WINDOW), min(len(text), end + WINDOW)
    shown = list(text[low:high])
    for pattern in SECRETS:
        for found in pattern.finditer(text, low, high):
            first, last = found.span(1) if pattern.groups and found[1] is not None else found.span()
            for i in range(first - low, last - low):
                shown[i] = MASK
    return "".join(shown[start - low : end - low])
