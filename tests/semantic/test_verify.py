"""The verifier that reads words only."""

from __future__ import annotations

import pytest

from cachestack.semantic.text import analyse
from cachestack.semantic.verify import LexicalVerifier


@pytest.mark.parametrize(
    ("cached", "asked", "agrees"),
    [
        ("How do I renew a visa?", "what is the best way to renew my visa", True),
        ("What are the symptoms of anaemia?", "what are the symtoms of anaemia", True),
        ("How do I renew a visa?", "How do I renew a visa quickly in Leeds?", False),
        ("How do I renew a visa?", "How do I renew a passport?", False),
        ("Who owns BBC?", "Who owns British Broadcasting Corporation?", None),
        ("Who is he?", "Who is she?", None),
    ],
)
def test_every_word_needs_its_partner(cached: str, asked: str, agrees: bool | None) -> None:
    one, other = analyse(cached, "en"), analyse(asked, "en")
    assert LexicalVerifier().verify(one, other, 0.85).agrees is agrees
    assert LexicalVerifier().verify(other, one, 0.85).agrees is agrees


def test_the_score_is_the_weaker_sides_share() -> None:
    one, other = analyse("renew visa", "en"), analyse("renew visa passport card", "en")
    said = LexicalVerifier().verify(one, other, 0.85)
    assert said.score == pytest.approx(0.5)
    assert said.evidence["only_asked"] == ["passport", "card"]
    assert LexicalVerifier(min_score=0.5).verify(one, other, 0.85).agrees is True
