"""The verifier that reads words only."""

from __future__ import annotations

import pytest

from cachestack.semantic.text import analyse
from cachestack.semantic.verifiers.base import Side
from cachestack.semantic.verifiers.lexical import LexicalVerifier


def side(text: str) -> Side:
    return Side(analyse(text, "en"))


@pytest.mark.parametrize(
    ("cached", "asked", "agrees"),
    [
        ("How do I renew a visa?", "what is the best way to renew my visa", True),
        ("What are the symptoms of anaemia?", "what are the symtoms of anaemia", True),
        ("How do I renew a visa?", "How do I renew a visa quickly in Leeds?", False),
        ("How do I renew a visa?", "How do I renew a passport?", False),
        ("Who owns BBC?", "Who owns British Broadcasting Corporation?", None),
        ("What is it?", "what is that", None),
        ("How do I renew a visa?", "When do I renew a visa?", False),
        ("Trains from Leeds to York", "Trains from York to Leeds", False),
        ("Which plants need sun?", "Which plants do not need sun?", False),
        ("Where is my seat?", "Where is your seat?", False),
    ],
)
def test_every_word_needs_its_partner_and_guards_no_doubt(cached: str, asked: str, agrees: bool | None) -> None:
    one, other = side(cached), side(asked)
    assert LexicalVerifier().verify(one, other, 0.85).agrees is agrees
    assert LexicalVerifier().verify(other, one, 0.85).agrees is agrees


def test_the_score_is_the_weaker_sides_share() -> None:
    one, other = side("renew visa"), side("renew visa passport card")
    said = LexicalVerifier().verify(one, other, 0.85)
    assert said.agrees is False
    assert said.score == pytest.approx(0.5)
    assert said.evidence["only_asked"] == ["passport", "card"]
    assert LexicalVerifier(min_score=0.5).verify(one, other, 0.85).agrees is True


def test_what_it_cannot_decide_is_in_doubt_by_its_score_too() -> None:
    """A full score would be served: thresholds look at the score where a verifier is not sure."""
    said = LexicalVerifier().verify(side("Who owns BBC?"), side("Who owns British Broadcasting Corporation?"), 0.95)
    assert (said.agrees, said.score) == (None, 0.5)
    assert said.evidence["guessed"] == ["initials"]


def test_a_guards_doubt_is_named() -> None:
    said = LexicalVerifier().verify(side("How do I renew a visa?"), side("When do I renew a visa?"), 0.95)
    assert (said.agrees, said.score, said.evidence) == (False, 0.0, {"doubts": ["slot"]})
