"""Labelled pairs of texts from groups of one question, its rewordings and its near misses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cachestack.corpus.schema import Question


@dataclass(frozen=True, slots=True)
class Pair:
    """`same`: one answer serves both. `group`: pairs of one group may share texts, so a fold takes whole groups.

    `kind` says where the pair comes from: a near miss's kind, `reworded`, `far`, or the name of a rule.
    """

    a: str
    b: str
    same: bool
    language: str
    group: str
    kind: str
    weight: float = 1.0


def pairs_of_question(question: Question) -> Iterator[Pair]:
    """Every two texts of a group whose label is known: all rewordings with each other and the base; each near miss
    with the base and the rewordings. Two near misses differ from each other as well, each by what it changed; that is
    not labelled, so they count half."""

    def pair(a: str, b: str, same: bool, kind: str, weight: float = 1.0) -> Pair:
        return Pair(a, b, same, question.language, question.id, kind, weight)

    alike = (question.text, *question.rewordings)
    for i, one in enumerate(alike):
        for other in alike[i + 1 :]:
            yield pair(one, other, True, "reworded")
    for near in question.near_misses:
        yield pair(question.text, near.text, False, near.kind)
        for text in question.rewordings:
            yield pair(text, near.text, False, f"{near.kind} reworded")
    for i, first in enumerate(question.near_misses):
        for second in question.near_misses[i + 1 :]:
            if first.kind != second.kind:
                yield pair(first.text, second.text, False, "two near misses", 0.5)


def shuffled(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """In random order, each pair's sides swapped half of the time."""
    rng = random.Random(seed)
    found = [p if rng.random() < 0.5 else Pair(p.b, p.a, p.same, p.language, p.group, p.kind, p.weight) for p in pairs]
    rng.shuffle(found)
    return found
