"""From messages to what is kept of them: chatter left out, the newest turns read, the rest as one digest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from cachestack.requests import Message
from cachestack.semantic.context.facts import MAX_READ, facts_of, turn_hash
from cachestack.semantic.context.kept import MAX_FACTS, NOTHING_BEFORE, Context, Exchange, Fact, long_hash, short_hash
from cachestack.semantic.context.standing import instructions, passage, traits
from cachestack.semantic.language import identify
from cachestack.semantic.lexicon.base import GUARDED_LANGUAGES, lexicon
from cachestack.semantic.lexicon.talk import talk
from cachestack.semantic.words import fold

MAX_CHARACTERS = 4_000
"""Of the newest turns, that are read for facts."""
MAX_SCANNED = 20_000
"""Of all turns, that are searched for instructions and texts. What lies beyond counts as an instruction as a whole."""
MAX_OUTPUT = 2_000
"""Characters of a tool's output, beyond which all of it counts as an instruction."""
MAX_CHATTER = 40
"""Characters of a turn that is too far back to be read, up to which it is taken to be chatter."""
MIN_CLAIM = 4
"""Words of a sentence that says that something is so."""
MAX_OTHERS = 0.4
"""Part of the words of small talk that may be other common words."""
MAX_TOOL = 300
"""Characters of a tool's output that are read; all of it counts as a whole."""
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_WORD = re.compile(r"[^\W\d_]+")
_INSTRUCTING = ("system", "developer")


def context_of(messages: Sequence[Message]) -> Context:
    """What the last message may lean on. System messages are no part of it: they are in the contract."""
    return _context_of(tuple(messages))


@lru_cache(maxsize=16)
def _context_of(messages: tuple[Message, ...]) -> Context:
    turns = [m for m in messages[:-1] if m.role not in _INSTRUCTING and m.content.strip()]
    if not turns:
        return NOTHING_BEFORE
    language = language_of(messages)
    newest = _newest(turns, MAX_CHARACTERS)
    scanned = _newest(turns, MAX_SCANNED)
    beyond = turns[: len(turns) - len(scanned)]
    names = _names(newest, language)
    exchanges: list[Exchange] = []
    older = list(turns[: len(turns) - len(newest)])
    room = MAX_FACTS
    groups = _exchanges(newest)
    while groups and room > 0:
        exchange = _exchange(groups[-1], language, names)
        if len(exchange.facts) > room:
            break
        turns_of_it = groups.pop()
        room -= len(exchange.facts)
        if not _is_chatter(turns_of_it, exchange, language):
            exchanges.append(exchange)
    older += [turn for group in groups for turn in group]
    said = [(m.content, language) for m in scanned if m.role == "user"]
    standing = {digest for m in scanned for digest in _instructions(m, language)}
    if beyond:
        standing.add(long_hash(*(turn_hash(m.content) for m in beyond)))
    last = turns[-1]
    return Context(
        exchanges=tuple(reversed(exchanges)),
        asked_back=_asked_back(last, language, names) if last.role == "assistant" else (),
        standing=frozenset(standing),
        passages=frozenset(p for m in scanned if m.role != "assistant" and (p := passage(m.content, language))),
        traits=frozenset(trait for text, lang in said for trait in traits(text, lang)),
        older=_older(older),
        is_unread=any(_is_unread(m.content) for m in newest if m.role != "tool"),
    )


def _instructions(turn: Message, language: str | None) -> frozenset[str]:
    """Of a long output of a tool, all of it: nobody has read it. Of an assistant, what it says of itself, since whoever
    asks can put that into its mouth."""
    if turn.role == "tool" and len(turn.content) > MAX_OUTPUT:
        return frozenset({turn_hash(turn.content)})
    return instructions(turn.content, language, of_itself=turn.role == "assistant")


def language_of(messages: Sequence[Message]) -> str | None:
    """That of the last message; where it is too short to tell, of the turns before it."""
    for message in reversed(messages):
        if message.role == "user" and (found := identify(message.content)) is not None:
            return found
    return None


def _newest(turns: Sequence[Message], characters: int) -> Sequence[Message]:
    for number, turn in enumerate(reversed(turns)):
        characters -= min(len(turn.content), MAX_READ)
        if characters < 0:
            return turns[len(turns) - number :]
    return turns


def _exchanges(turns: Sequence[Message]) -> list[list[Message]]:
    """Each begins where a user speaks after somebody else."""
    groups: list[list[Message]] = []
    for turn in turns:
        if not groups or (turn.role == "user" and groups[-1][-1].role != "user"):
            groups.append([])
        groups[-1].append(turn)
    return groups


def _exchange(turns: Sequence[Message], language: str | None, names: frozenset[str]) -> Exchange:
    facts: dict[tuple[str, ...], Fact] = {}
    order: list[str] = []
    for turn in turns:
        said = facts_of(turn.content, language, MAX_TOOL if turn.role == "tool" else MAX_READ)
        ours = [fact for fact in said.facts if fact.text not in names]
        order += [turn.role, str(said.negations), *(fact.ids[0] for fact in ours)]
        facts |= {fact.ids: fact for fact in ours if fact.ids not in facts}
    claims = any(_claims(turn.content, language) for turn in turns if turn.role != "assistant")
    return Exchange(tuple(facts.values()), short_hash(" ".join(order)), claims)


@lru_cache(maxsize=2048)
def _claims(text: str, language: str | None) -> bool:
    """Whether a sentence says that something is so, and not of who speaks: it may have been planted."""
    personal = talk(language).personal
    said = [s for s in _SENTENCE.split(text[:MAX_READ]) if "?" not in s]
    return any(len(words := set(_WORD.findall(fold(s)))) >= MIN_CLAIM and words.isdisjoint(personal) for s in said)


def _is_chatter(turns: Sequence[Message], exchange: Exchange, language: str | None) -> bool:
    """Greetings, thanks, the weather. Who speaks of something of theirs tells something, whatever the words."""
    words = talk(language)
    if not exchange.facts:
        return True
    others = [fact for fact in exchange.facts if fact.text not in words.small_talk]
    if len(others) > MAX_OTHERS * len(exchange.facts) or any(f.kind not in ("common", "word") for f in others):
        return False
    said = {word for turn in turns if turn.role == "user" for word in fold(turn.content).split()}
    return words.own.isdisjoint(said) and all(turn.role in ("user", "assistant") for turn in turns)


def _older(turns: Sequence[Message]) -> str:
    """A digest of all of them; empty where all are too short to say anything."""
    if all(len(turn.content) < MAX_CHATTER for turn in turns):
        return ""
    return long_hash(*(turn_hash(turn.content) for turn in turns))


def _asked_back(turn: Message, language: str | None, names: frozenset[str]) -> tuple[Fact, ...]:
    """The facts of the last question in a turn."""
    sentences = [s for s in _SENTENCE.split(turn.content[-MAX_READ:]) if s.strip()]
    asked = [s for s in sentences if "?" in s]
    found = facts_of(asked[-1], language).facts if asked else ()
    return tuple(f for f in found if f.text not in names)[:12]


@lru_cache(maxsize=2048)
def _names_in(text: str, language: str | None) -> frozenset[str]:
    """Names with which people introduce or address each other: they are nobody's matter."""
    found: set[str] = set()
    for match in talk(language).persons_are.finditer(text[:MAX_READ]):
        for group in match.groups():
            found.update(fold(group or "").split())
    return frozenset(name for name in found if name not in lexicon(language).siblings)


def _names(turns: Sequence[Message], language: str | None) -> frozenset[str]:
    return frozenset(name for turn in turns for name in _names_in(turn.content, language))


@lru_cache(maxsize=2048)
def _is_unread(text: str) -> bool:
    """In another language than English and French, or hardly in words at all."""
    language = identify(text)
    if language is not None:
        return language not in GUARDED_LANGUAGES
    if len(text) < 40:
        return False
    letters = sum((c.isalpha() and c.isascii()) or c.isspace() for c in text)
    return letters < 0.6 * len(text)
