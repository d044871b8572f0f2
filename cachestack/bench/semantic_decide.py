"""The decision after the embedding, over a cache that is full: the pipeline's own look-up, question by question."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from cachestack.bench.semantic_filled import NUM_NEAREST, Filled
from cachestack.bench.semantic_material import Question, request_of
from cachestack.bench.semantic_report import Decision, Times
from cachestack.effects import Embed, Embedding
from cachestack.entries import Candidate
from cachestack.errors import EngineError
from cachestack.models.manifest import Report
from cachestack.performer import Performer
from cachestack.policy import Policy
from cachestack.semantic.layer import Asked, semantic_lookup
from cachestack.stack import CacheStack

_TOLERANCE = 1e-4


def decide_all(
    filled: Filled, stack: CacheStack, asked: Sequence[Question], report: Report, timer: Callable[[], float]
) -> Decision:
    """With the stack's policy and encoder. Similarities and neighbours are checked against all vectors."""
    population, encoder = filled.population, stack.performer.encoder
    assert encoder is not None, "the stack was built with an encoder"
    performer = Performer(filled.store, filled.index, encoder, packer=stack.performer.packer)
    policy = stack.policies.policy(population.partition.tenant)
    common = population.common_rows()
    whole: list[float] = []
    search: list[float] = []
    rare: list[float] = []
    num_right = num_nearest = num_wrong = num_near = 0
    for number, question in enumerate(asked):
        report("deciding", number, len(asked))
        lookup = Asked(request_of(question.text), population.common, population.partition)
        whole.append(_decided(lookup, question, performer, policy, encoder.languages, timer))
        began = timer()
        filled.search(population.rare, question)
        rare.append(timer() - began)
        began = timer()
        found = filled.search(population.common, question)
        search.append(timer() - began)
        scores = population.vectors @ np.frombuffer(question.vector, dtype="<f4")
        best = common[np.argsort(-scores[common])[:NUM_NEAREST]]
        num_right += len({_number(c) for c in found} & set(best.tolist()))
        num_nearest += len(best)
        num_near += sum(c.similarity >= policy.semantic.reject_below for c in found)
        num_wrong += sum(abs(c.similarity - float(scores[_number(c)])) > _TOLERANCE for c in found)
    report("deciding", len(asked), len(asked))
    return Decision(
        whole=Times.of(whole),
        search=Times.of(search),
        rare=Times.of(rare),
        num_asked=len(asked),
        num_near=num_near / len(asked),
        recall=num_right / num_nearest,
        num_wrong=num_wrong,
    )


def _number(candidate: Candidate) -> int:
    return int(candidate.entry.entry_id, 16)


def _decided(
    asked: Asked,
    question: Question,
    performer: Performer,
    policy: Policy,
    languages: frozenset[str],
    timer: Callable[[], float],
) -> float:
    """Seconds from the embedding to the decision."""
    lookup = semantic_lookup(asked, policy, languages, time.time())
    began: float | None = None
    try:
        effect = next(lookup)
        while True:
            if isinstance(effect, Embed):
                began = timer()
                effect = lookup.send(Embedding(question.vector, question.encoder, question.states))
            else:
                effect = lookup.send(performer.perform(effect, {}))
    except StopIteration:
        if began is None:
            raise EngineError(f"the question {question.text!r} was not to be embedded") from None
        return timer() - began
