"""Where two texts differ in one small thing alone, a doubt refuses; where they differ in more, it is weighed."""

from __future__ import annotations

import pytest

from cachestack.semantic.guards import judge
from cachestack.semantic.minimal import only_difference
from cachestack.semantic.text import analyse


def found(cached: str, asked: str, language: str = "en") -> str | None:
    one, other = analyse(cached, language), analyse(asked, language)
    verdict = only_difference(one, other, [v for v in judge(one, other) if not v.passed])
    return None if verdict is None else verdict.kind


@pytest.mark.parametrize(
    ("cached", "asked", "kind", "language"),
    [
        ("How do I send money with PayPal?", "How do I send money to PayPal?", "preposition", "en"),
        ("Can I work for Google?", "can i work with google", "preposition", "en"),
        ("Where is my seat?", "Where is your seat?", "person", "en"),
        ("How do I report my boss?", "How do I report to my boss?", "preposition", "en"),
        ("Must I declare it?", "Should I declare it?", "modality", "en"),
        ("Do I owe my landlord?", "Does my landlord owe me?", "order", "en"),
        ("Où est mon siège ?", "Où est votre siège ?", "person", "fr"),
    ],
)
def test_a_doubt_that_is_all_the_difference_refuses(cached: str, asked: str, kind: str, language: str) -> None:
    assert found(cached, asked, language) == kind
    assert found(asked, cached, language) == kind


@pytest.mark.parametrize(
    ("cached", "asked"),
    [
        ("How do I renew my visa?", "how can i renew my visa please"),
        ("Where is my seat?", "where's my seat??"),
        ("How do I get a copy of my payslip?", "Where can I download my wage statement?"),
        ("What does it cost to ship with UPS?", "What is the shipping price to Leeds?"),
    ],
)
def test_nothing_is_refused_where_more_differs_or_nothing_does(cached: str, asked: str) -> None:
    assert found(cached, asked) is None
    assert found(cached, cached) is None
