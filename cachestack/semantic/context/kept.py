"""What is kept of the turns before a question: small, versioned, and without a word of them.

Words, numbers and names are kept as short hashes, enough to tell whether another conversation has the same ones. About
1 kB for ten turns, 2 kB at most.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

VERSION = 1
MAX_FACTS = 150
"""Of one conversation. What does not fit is kept as one digest, and compared as a whole."""
FactKind = Literal["common", "word", "rare", "name", "number", "date", "whole"]
_KINDS: Mapping[str, FactKind] = dict(zip("cwrn#@x", get_args(FactKind), strict=True))
_LETTERS: Mapping[FactKind, str] = {kind: letter for letter, kind in _KINDS.items()}
_ID_CHARACTERS = 4


@dataclass(frozen=True, slots=True)
class Fact:
    """One word, name, number or date. Two are the same where their `ids` meet. `text` is not kept: it is for the trace
    of who said it. `whole` is a text that is compared as one. `unit`: of a number, a hash of what it counts."""

    kind: FactKind
    ids: tuple[str, ...]
    text: str = field(default="", compare=False)
    unit: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a user said and what was answered. `order` is a digest of who said which facts in which order, and how often
    something was negated: two exchanges with the same one are the same. `claims`: something is said to be so, of nobody
    who speaks."""

    facts: tuple[Fact, ...] = ()
    order: str = ""
    claims: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What a question may lean on. `exchanges` come oldest first, without chatter.

    `asked_back` is the question that the last turn may answer. `standing`:
    what the asker wants of every answer; `passages`: texts given to be asked about; `traits`: what askers say of
    themselves, by class; `older`: a digest of what lies too far back to be read. `is_unread`: in a language, or of a
    kind, that is not read: only the very same history serves.
    """

    exchanges: tuple[Exchange, ...] = ()
    asked_back: tuple[Fact, ...] = ()
    standing: frozenset[str] = frozenset()
    passages: frozenset[str] = frozenset()
    traits: frozenset[tuple[str, str]] = frozenset()
    older: str = ""
    is_unread: bool = False


NOTHING_BEFORE = Context()
"""Of a question that came first."""


def short_hash(text: str) -> str:
    """Four characters: two texts of a conversation have the same one by chance once in sixteen million."""
    made = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=3).digest()
    return base64.urlsafe_b64encode(made).decode()


def long_hash(*texts: str) -> str:
    """For what must be equal as a whole."""
    made = hashlib.blake2b(json.dumps(texts).encode(), digest_size=12).digest()
    return base64.urlsafe_b64encode(made).decode()


def dumps(context: Context) -> str:
    """As entries keep it."""
    kept: dict[str, Any] = {
        "x": [[_written(x.facts), x.order, x.claims] for x in context.exchanges],
        "a": _written(context.asked_back),
        "s": sorted(context.standing),
        "p": sorted(context.passages),
        "t": sorted(map(list, context.traits)),
        "o": context.older,
        "u": context.is_unread,
    }
    return json.dumps({"v": VERSION} | {key: value for key, value in kept.items() if value}, separators=(",", ":"))


def loads(text: str) -> Context | None:
    """None for what is not one, or of another version: then only the very same history serves."""
    try:
        kept = json.loads(text)
        if kept.pop("v") != VERSION or set(kept) - set("xasptou"):
            return None
        return Context(
            exchanges=tuple(
                Exchange(_read(facts), str(order), bool(claims)) for facts, order, claims in kept.get("x", ())
            ),
            asked_back=_read(kept.get("a", "")),
            standing=frozenset(map(str, kept.get("s", ()))),
            passages=frozenset(map(str, kept.get("p", ()))),
            traits=frozenset((str(kind), str(value)) for kind, value in kept.get("t", ())),
            older=str(kept.get("o", "")),
            is_unread=bool(kept.get("u", False)),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _written(facts: Iterable[Fact]) -> str:
    return " ".join(_LETTERS[f.kind] + f.unit + "".join(f.ids) for f in facts)


def _read(text: str) -> tuple[Fact, ...]:
    return tuple(map(_fact, text.split()))


def _fact(text: str) -> Fact:
    kind, rest = _KINDS[text[0]], text[1:]
    if not rest or len(rest) % _ID_CHARACTERS:
        raise ValueError("a fact of another shape")
    found = tuple(rest[i : i + _ID_CHARACTERS] for i in range(0, len(rest), _ID_CHARACTERS))
    if kind == "number":
        return Fact(kind, found[1:], unit=found[0])
    return Fact(kind, found)
