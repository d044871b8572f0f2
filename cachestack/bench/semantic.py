"""`cachestack bench semantic`: exact hits, the decision after the embedding, the embedding, and what an index costs.

Every result is checked: an exact hit must be the entry that was put, a similarity the cosine of the two vectors. The
cache is a folder of its own, removed at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from cachestack.bench.machine import Machine
from cachestack.bench.semantic_decide import decide_all
from cachestack.bench.semantic_embedding import embedding_ratio
from cachestack.bench.semantic_exact import exact_hits
from cachestack.bench.semantic_filled import Filled
from cachestack.bench.semantic_material import Population, Question, embedded, texts_for
from cachestack.bench.semantic_report import SemanticReport
from cachestack.bench.semantic_settings import Settings
from cachestack.build import build_without_engine
from cachestack.models.manifest import Report, report_nothing
from cachestack.performer import Performer
from cachestack.stack import CacheStack


def bench_semantic(
    settings: Settings,
    machine: Machine,
    *,
    report: Report = report_nothing,
    timer: Callable[[], float] = time.perf_counter,
) -> SemanticReport:
    """Raises what the encoder and the store raise."""
    began = timer()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="cachestack-bench-")))
        stack = opened.enter_context(
            build_without_engine(CacheStack, encoder=None, policies=None, home=folder / "home")
        )
        kept, asked = _embedded(stack.performer, settings, report)
        ratio, embedding_s = embedding_ratio(
            stack.performer, [q.text for q in asked], settings.num_pairs, report, timer
        )
        exact = exact_hits(stack, [q.text for q in kept], settings.num_exact, report, timer)
        filled = Filled(Population(kept, settings.num_entries), settings, folder, report, timer)
        with closing(filled):
            filling, memory = filled.fill()
            decision = decide_all(filled, stack, asked, report, timer)
            kind = filled.index.counts().kind
        return SemanticReport(
            num_entries=settings.num_entries,
            kind=kind,
            exact=exact,
            filling=filling,
            memory=memory,
            decision=decision,
            embedding=ratio,
            embedding_ms=1000 * embedding_s,
            machine=machine,
            num_real=len(kept),
            quick=settings.quick,
            full=settings.full,
            elapsed_s=timer() - began,
        )


def _embedded(performer: Performer, settings: Settings, report: Report) -> tuple[list[Question], list[Question]]:
    encoder = performer.encoder
    assert encoder is not None, "the stack was built with an encoder"
    texts = texts_for(settings.num_kept, settings.num_asked)
    total = len(texts.kept) + len(texts.asked)
    found: list[Question] = []
    for question in embedded((*texts.kept, *texts.asked), encoder, performer.packer):
        found.append(question)
        report("embedding", len(found), total)
    return found[: len(texts.kept)], found[len(texts.kept) :]
