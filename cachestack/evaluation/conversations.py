"""Pairs made of the corpus's conversations: the same last turn after other turns, and conversations as written.

Two sets. `same last turn`: `b` ends with the very words of `a`, so that the turns before alone decide. `as written`:
the last turns are in other words too, so that the verifiers decide as well.

====================  =========  ==================================================================================
set, category          answer     `b` is
====================  =========  ==================================================================================
chatter                same       `a` with small talk before it, or between the story and the question
other history          same       a question that stands alone, after another conversation's turns, or after none
earlier topic          same       `a` after another conversation's turns
told otherwise         same       the same story in other words
other number, …        other      `a` with one thing changed, or another story
another history        other      a question that leans on its story, after another conversation's turns
no history             other      the same, after none
reworded               same       the same story and the last turn, both in other words
last turn: …           other      `a` with another last turn
====================  =========  ==================================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from random import Random
from typing import Literal

from cachestack.corpus.load import SOURCE
from cachestack.corpus.schema import Conversation, Turn
from cachestack.evaluation.pairs import Pair
from cachestack.requests import Message

Split = Literal["tuning", "held-out", "all"]
SAME_LAST, AS_WRITTEN = "same last turn", "as written"
Turns = tuple[Message, ...]

_SMALL_TALK = {
    "en": (
        ("Hi, how are you today?", "Hello! I'm fine, thank you. How can I help?"),
        ("Thanks a lot!", "You're welcome! Anything else?"),
        ("Nice weather today, isn't it?", "Yes, lovely and sunny!"),
        ("good morning", "Good morning! What can I do for you?"),
        ("Who won the match last night?", "I'm afraid I don't follow football, sorry!"),
        ("hey are you a bot lol", "I am an assistant, happy to help :)"),
        ("Ugh, Monday again, I need coffee.", "Hang in there!"),
        ("Great, that's clear now.", "Glad to hear it."),
    ),
    "fr": (
        ("Bonjour, vous allez bien ?", "Bonjour ! Très bien, merci. Comment puis-je vous aider ?"),
        ("Merci beaucoup !", "Avec plaisir ! Autre chose ?"),
        ("Quel beau temps aujourd'hui !", "Oui, un grand soleil !"),
        ("bonsoir", "Bonsoir ! Que puis-je faire pour vous ?"),
        ("Qui a gagné le match hier soir ?", "Désolé, je ne suis pas le football !"),
        ("t'es un robot mdr ?", "Je suis un assistant, ravi de vous aider :)"),
        ("Encore lundi, il me faut un café.", "Courage !"),
        ("Parfait, c'est clair maintenant.", "J'en suis ravi."),
    ),
}


def split_of(name: str) -> Split:
    """By a hash of the id: what was tuned on one part, three quarters, is measured on the other."""
    return "held-out" if hashlib.sha256(name.encode()).digest()[-1] % 4 == 1 else "tuning"


def conversation_pairs(
    conversations: Sequence[Conversation], split: Split, seed: int = 0
) -> dict[str, tuple[Pair, ...]]:
    """The pairs of each set. `seed` draws the small talk and the other conversations, from the same part."""
    part = [c for c in conversations if split in ("all", split_of(c.id))]
    random = Random(seed)
    same_last: list[Pair] = []
    as_written: list[Pair] = []
    for conversation in part:
        same_last += _same_last(conversation, part, random)
        as_written += _as_written(conversation)
    return {SAME_LAST: tuple(same_last), AS_WRITTEN: tuple(as_written)}


def _same_last(conversation: Conversation, part: Sequence[Conversation], random: Random) -> Iterable[Pair]:
    base = _messages(conversation.messages)
    system, earlier, last = _parts(base)
    chatter = _messages_of(random.choice(_SMALL_TALK[conversation.language]))
    others = [
        _parts(_messages(c.messages))[1]
        for c in part
        if c.language == conversation.language and c.id != conversation.id and (c.standalone or conversation.standalone)
    ]
    other = random.choice(others) if others else ()

    def pair(name: str, turns: Turns, same: bool, category: str) -> Pair:
        return _pair(conversation, name, base, (*system, *turns, last), same, category)

    yield pair("chatter-before", (*chatter, *earlier), True, "chatter")
    if conversation.standalone or not _asks(earlier):
        yield pair("chatter-after", (*earlier, *chatter), True, "chatter")
    if conversation.standalone:
        yield pair("other", other, True, "other history")
        yield pair("none", (), True, "other history")
    else:
        yield pair("earlier", (*other, *earlier), True, "earlier topic")
        yield pair("other", other, False, "another history")
        yield pair("none", (), False, "no history")
    for number, turns in enumerate(conversation.same):
        name = "other history" if conversation.standalone else "told otherwise"
        yield pair(f"s{number}", _parts(_messages(turns))[1], True, name)
    for number, different in enumerate(conversation.different):
        messages = _messages(different.messages)
        if messages[-1] == last:
            category = f"other {different.kind}".replace("_", " ")
            yield _pair(conversation, f"d{number}", base, messages, False, category)


def _as_written(conversation: Conversation) -> Iterable[Pair]:
    base = _messages(conversation.messages)
    for number, turns in enumerate(conversation.same):
        category = "reworded, alone" if conversation.standalone else "reworded, leaning"
        yield _pair(conversation, f"w{number}", base, _messages(turns), True, category)
    for number, different in enumerate(conversation.different):
        messages = _messages(different.messages)
        if messages[-1] != base[-1]:
            category = f"last turn: {different.kind}".replace("_", " ")
            yield _pair(conversation, f"d{number}", base, messages, False, category)


def _pair(conversation: Conversation, name: str, a: Turns, b: Turns, same: bool, category: str) -> Pair:
    place = f"{conversation.id}-{name}"
    return Pair(place, a, b, same, category, f"{SOURCE}:{place}", conversation.language)


def _messages(turns: Sequence[Turn]) -> Turns:
    return tuple(Message(turn.role, turn.content) for turn in turns)


def _messages_of(talk: tuple[str, str]) -> Turns:
    return Message("user", talk[0]), Message("assistant", talk[1])


def _parts(messages: Turns) -> tuple[Turns, Turns, Message]:
    """System messages, the turns before the last, and the last."""
    system = tuple(m for m in messages if m.role == "system")
    return system, tuple(m for m in messages[:-1] if m.role != "system"), messages[-1]


def _asks(turns: Turns) -> bool:
    """Whether the last turn is a question: then what comes next may be its answer."""
    return bool(turns) and turns[-1].role == "assistant" and "?" in turns[-1].content
