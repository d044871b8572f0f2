"""What a provider says of an error, without what it says of the operator: a provider that refuses a key repeats pieces
of it, and names the organisation and the project that it is of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "[hidden]"
_MAX_CHARS = 2000
_SECRETS = re.compile(
    r"""
      (?<![\w-]) (?: sk | pk | rk | sess | key | gsk | xai | hf | nvapi | csk | ghp | glpat | xox[abp] )
                 [-_] (?=[\w*.…-]{5}) (?=[\w.-]*[\d*…]) [\w*.…-]+    # keys, whole or with a middle of stars or dots
    | (?<![\w-]) (?: org | proj | project | user | acct | acc | wrkspc | workspace | team | tenant )
                 [-_] (?=\w*\d) \w{8,}                      # whose they are
    | \b [\da-f]{8} (?:-[\da-f]{4}){3} - [\da-f]{12} \b      # how Anthropic and Azure name both
    | [\w.…-]* \*{3,} [\w*-]*                               # any word with stars in it
    | (?i: bearer | basic ) \s+ [\w.~+/=-]{8,}
    | \b AKIA \w{12,} | \b AIza [\w-]{20,} | \b eyJ [\w-]{8,} \. [\w.-]+
    | (?<=://) [^\s/@]+ : [^\s/@]+ (?=@)
    """,
    re.VERBOSE,
)


def masked(text: str) -> str:
    return _SECRETS.sub(MASK, text[:_MAX_CHARS])


def masked_error(error: Any) -> dict[str, Any] | None:
    """What clients read of an error object: message, type, param, code. None where there is no message."""
    if not isinstance(error, Mapping) or not isinstance(error.get("message"), str):
        return None
    said = {name: error.get(name) for name in ("message", "type", "param", "code")}
    return {name: masked(value) if isinstance(value, str) else _plain(value) for name, value in said.items()}


def _plain(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) else None
