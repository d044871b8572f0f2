"""Secrets in a text, by known kinds: keys of providers by their beginnings, key blocks, tokens, passwords.

Each kind is looked for only where a short literal of it occurs, so that a text without any costs a few scans. All
patterns are of bounded repetitions, or of one class followed by what is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cachestack.semantic.admission.checks import bits_per_character
from cachestack.semantic.admission.reading import words_of

MIN_BITS = 3.0
"""Bits a character below which what is called a key is a word or a stand-in."""


@dataclass(frozen=True, slots=True)
class Found:
    """`value` never leaves the process's memory: traces and logs name the kind."""

    kind: str
    value: str


_KEYS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("aws_key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    ("github_token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
     r"\b(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})\b"),
    ("gitlab_token", ("glpat-", "gldt-", "glrt-"), r"\bgl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,255}"),
    ("anthropic_key", ("sk-ant-",), r"\bsk-ant-[A-Za-z0-9_-]{16,255}"),
    ("openai_key", ("sk-",), r"\bsk-(?!ant-)(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,255}"),
    ("stripe_key", ("_live_", "_test_", "whsec_"),
     r"\b(?:[srp]k_(?:live|test)_[A-Za-z0-9]{10,255}|whsec_[A-Za-z0-9+/=]{20,255})"),
    ("slack_token", ("xox", "xapp-", "hooks.slack.com"),
     r"\bxox[abeoprs]-[A-Za-z0-9-]{10,255}|"
     r"\bxapp-[0-9]-[A-Za-z0-9-]{10,255}|hooks\.slack\.com/services/[A-Za-z0-9/]{20,255}"),
    ("google_key", ("AIza", "ya29.", "GOCSPX-"),
     r"\bAIza[A-Za-z0-9_-]{35}|\bya29\.[A-Za-z0-9_-]{20,255}|\bGOCSPX-[A-Za-z0-9_-]{20,255}"),
    ("hugging_face_token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,255}\b"),
    ("npm_token", ("npm_",), r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("pypi_token", ("pypi-AgE",), r"\bpypi-AgE[A-Za-z0-9_-]{40,255}"),
    ("sendgrid_key", ("SG.",), r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    ("twilio_key", ("SK", "AC"), r"\b(?:SK|AC)[0-9a-f]{32}\b"),
    ("mailgun_key", ("key-",), r"\bkey-[0-9a-f]{32}\b"),
    ("shopify_token", ("shpat_", "shpss_", "shpca_", "shppa_"), r"\bshp(?:at|ss|ca|pa)_[a-fA-F0-9]{32}\b"),
    ("square_token", ("sq0", "EAAA"), r"\bsq0[a-z]{3}-[A-Za-z0-9_-]{20,60}|\bEAAA[A-Za-z0-9_-]{60}"),
    ("digitalocean_token", ("dop_v1_", "doo_v1_"), r"\bdo[or]?p?_v1_[a-f0-9]{64}\b"),
    ("docker_token", ("dckr_",), r"\bdckr_(?:pat|oat)_[A-Za-z0-9_-]{20,255}"),
    ("azure_key", ("AccountKey=", "SharedAccessKey="), r"\b(?:Account|SharedAccess)Key=[A-Za-z0-9+/=]{40,120}"),
    ("databricks_token", ("dapi",), r"\bdapi[a-f0-9]{32}\b"),
    ("grafana_token", ("glsa_", "glc_"), r"\bgl(?:sa|c)_[A-Za-z0-9_+/=]{30,255}"),
    ("new_relic_key", ("NRAK-",), r"\bNRAK-[A-Z0-9]{27}\b"),
    ("vault_token", ("hvs.", "hvb."), r"\bhv[sb]\.[A-Za-z0-9_-]{24,255}"),
    ("telegram_token", (":AA",), r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}\b"),
    ("age_key", ("AGE-SECRET-KEY-",), r"\bAGE-SECRET-KEY-1[A-Z0-9]{58}\b"),
    ("groq_key", ("gsk_",), r"\bgsk_[A-Za-z0-9]{40,80}\b"),
    ("linear_key", ("lin_api_",), r"\blin_api_[A-Za-z0-9]{32,64}\b"),
    ("notion_token", ("ntn_", "secret_"), r"\b(?:ntn_[A-Za-z0-9]{40,60}|secret_[A-Za-z0-9]{40,60})\b"),
    ("private_key", ("PRIVATE KEY",), r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"),
    ("jwt", ("eyJ",), r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{10,2048}"),
    ("connection_string", ("://",), r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@\"'<>]{1,100}:[^\s/@\"'<>]{3,200}@[^\s\"'<>]{2,100}"),
)  # fmt: skip
_COMPILED = tuple((kind, literals, re.compile(pattern)) for kind, literals, pattern in _KEYS)
_STAND_IN = re.compile(
    r"example|exemple|your|votre|placeholder|changeme|change_me|xxxx|\.\.\.|\*\*\*|<|\$\{|\{\{|dummy|sample|"
    r"redacted|0000000|1234567890abcdef|abcdef123456|not-a-real|fake|insert|replace|environ|getenv|process\.env",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"\b(?:api[_ -]?key|apikey|secret(?:[_ -]?(?:key|token))?|client[_ -]?secret|access[_ -]?(?:key|token)|"
    r"auth[_ -]?token|(?:bearer|refresh|session|id|deploy|personal access)[_ -]?token|token|private[_ -]?key|"
    r"cl[eé] (?:d'api|api|secr[eè]te)|jeton|authorization)"
    r"[\"']?(?: is| est|\s?[:=]| ?=>)\s?[\"'`]?(?:bearer |basic |token )?([A-Za-z0-9+/=_.~-]{16,512})",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(?:bearer|basic) ([A-Za-z0-9+/=_.~-]{20,4096})", re.IGNORECASE)
_PASSWORD = re.compile(
    r"\b(?:password|passwd|passphrase|passcode|pwd|pass word|mot de passe|mdp|code secret|code pin|pin(?: code)?|"
    r"cvv|cvc|code de s[ée]curit[ée]|otp|one[- ]time code|security code|code de v[ée]rification|verification code)"
    r"(?: (?:for|pour|of|de|du) [\w.@-]{1,40}){0,2}[\"']?(\s?(?:=|:|=>)\s?| (?:is|was|est|était|c'est|"
    r"would be) (?:now |currently |maintenant |"
    r"actuellement )?:? ?)[\"'`\u00ab\u201c]?\s?([^\s\"'`,;<>\u00bb\u201d]{3,128})",
    re.IGNORECASE,
)
_MINE = re.compile(r"\b(?:my|our|the|mon|notre|ma|le|la|her|his|son)\b[^.!?\n]{0,40}$", re.IGNORECASE)
_NO_PASSWORD = words_of(
    "wrong incorrect invalid expired required not correct too weak strong empty null none true false string str "
    "text optional the a an being still set never changed lost forgotten stolen locked blocked case at minimum same "
    "different needed rejected refused accepted valid unknown compromised weak secure temporary mandatory hashed "
    "encrypted stored saved always also only ok okay fine missing no yes and or in on to of it that what this one "
    "for from when if as sent shown asked used reset incorrecte invalide expiré expirée erroné oublié perdu faux "
    "requis obligatoire trop pas vide refusé bloqué correct incorrect bon mauvais différent identique sécurisé "
    "demandé inconnu périmé temporaire provisoire volé changé compromis toujours le la un une celui bien déjà "
    "encore dans sur envoyé affiché et ou de du que quoi ce il"
)


def find_secrets(text: str) -> Iterator[Found]:
    """In no particular order; a value may come twice under two kinds."""
    for kind, literals, pattern in _COMPILED:
        if any(literal in text for literal in literals):
            for found in pattern.finditer(text):
                if not _STAND_IN.search(found.group()):
                    yield Found(kind, found.group())
    lower = text.lower()
    if any(name in lower for name in ("key", "secret", "token", "clé ", "jeton", "authorization")):
        for found in _NAMED.finditer(text):
            if _is_random(found.group(1)):
                yield Found("credential", found.group(1))
    if "bearer " in lower or "basic " in lower:
        for found in _BEARER.finditer(text):
            if _is_random(found.group(1)):
                yield Found("credential", found.group(1))
    if any(name in lower for name in ("pass", "pwd", "mdp", "pin", "cvv", "cvc", "otp", "code")):
        for found in _PASSWORD.finditer(text):
            if _is_password(found, text):
                yield Found("password", found.group(2))


def _is_random(value: str) -> bool:
    """Letters and digits mixed as nobody writes a word: with care, an identifier in a program has few digits."""
    if _STAND_IN.search(value) or "/" in value[:1] or value.count(".") > 2:
        return False
    digits = sum(c.isdigit() for c in value)
    return (
        digits >= 2
        and any(c.isalpha() for c in value)
        and digits * 12 >= len(value)
        and bits_per_character(value) >= MIN_BITS
    )


def _is_password(found: re.Match[str], text: str) -> bool:
    value = found.group(2).rstrip(".!?)")
    is_said = not found.group(1).strip(" ").startswith(("=", ":"))
    plain = value.lower().strip("*_")
    if len(value) < 3 or plain in _NO_PASSWORD or _STAND_IN.search(value) or not any(c.isalnum() for c in value):
        return False
    if value.startswith(("os.", "$", "{", "(", "[", "%", "-")) or value.endswith(("(", "()")) or "(" in value:
        return False
    mixed = any(c.isdigit() for c in value) or any(not c.isalnum() for c in value.strip("'-"))
    inner = any(c.isupper() for c in value[1:]) and any(c.islower() for c in value)
    if mixed or inner:
        return len(value) >= 4 or value.isdigit()
    before = text[max(0, found.start() - 48) : found.start()]
    ends = "." if found.group(2) != value else text[found.end(2) : found.end(2) + 2].strip()
    return (
        is_said and _MINE.search(before) is not None and (ends[:1] in ("", ".", ",", "!", "'", '"')) and len(value) >= 5
    )
