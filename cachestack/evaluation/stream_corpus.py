"""Streams made from clusters of the corpus: a question, its rewordings, its near misses, asked again and again.

How often a cluster is asked follows Zipf's law; which of its texts, is drawn: near misses with a share, else the base
question or one of its rewordings, each as likely. Base and rewordings share a label, each near miss has its own. With
drift the second half asks other domains more, and has more near misses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cachestack.corpus.schema import Question
from cachestack.evaluation.stream_material import Asked

NEAR_MISSES = 0.2
DRIFTED_NEAR_MISSES = 0.4


@dataclass(frozen=True, slots=True)
class Cluster:
    domain: str
    same: tuple[Asked, ...]
    near: tuple[Asked, ...]


def clusters_of(questions: Sequence[Question]) -> tuple[Cluster, ...]:
    """A text that stands in two clusters is the first one's alone: it can have one answer only."""
    seen: set[str] = set()
    found = []
    for question in questions:
        same = [Asked(text, question.id) for text in (question.text, *question.rewordings)]
        near = [Asked(miss.text, f"{question.id}/{n}") for n, miss in enumerate(question.near_misses)]
        new = [[a for a in part if a.text.strip() not in seen] for part in (same, near)]
        seen.update(a.text.strip() for part in new for a in part)
        if new[0]:
            found.append(Cluster(question.domain, tuple(new[0]), tuple(new[1])))
    return tuple(found)


def draw(
    clusters: Sequence[Cluster],
    num_requests: int,
    seed: int,
    *,
    near_misses: float | None = NEAR_MISSES,
    zipf: float = 1.0,
    drift: bool = False,
) -> list[Asked]:
    """`near_misses` None: every text of a cluster is as likely as another."""
    rng = np.random.default_rng(seed)
    weights = np.asarray(1.0 / np.arange(1, len(clusters) + 1) ** zipf, dtype=np.float64)
    ranks = rng.permutation(len(clusters))
    half = num_requests // 2 if drift else num_requests
    asked = _drawn(clusters, ranks, weights, half, near_misses, rng)
    if drift:
        domains = sorted({cluster.domain for cluster in clusters})
        favoured = set(rng.permutation(len(domains))[: len(domains) // 2].tolist())
        boost = np.asarray([6.0 if domains.index(clusters[c].domain) in favoured else 1.0 for c in ranks])
        more = DRIFTED_NEAR_MISSES if near_misses is not None else None
        asked += _drawn(clusters, ranks, weights * boost, num_requests - half, more, rng)
    return asked


def _drawn(
    clusters: Sequence[Cluster],
    ranks: NDArray[np.int64],
    weights: NDArray[np.float64],
    num: int,
    near_misses: float | None,
    rng: np.random.Generator,
) -> list[Asked]:
    picked = ranks[rng.choice(len(clusters), size=num, p=weights / weights.sum())]
    which, kind = rng.random(num), rng.random(num)
    found = []
    for place in range(num):
        cluster = clusters[picked[place]]
        if near_misses is None:
            texts: tuple[Asked, ...] = cluster.same + cluster.near
        else:
            texts = cluster.near if kind[place] < near_misses and cluster.near else cluster.same
        found.append(texts[int(which[place] * len(texts))])
    return found
