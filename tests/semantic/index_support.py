"""Entries and vectors for tests of the index: clustered, as questions are, and cheap."""

from __future__ import annotations

import numpy as np

from cachestack.entries import Entry
from cachestack.keys import Partition, digest
from cachestack.semantic.index import FaissIndex

ACME = Partition("acme")
ENCODER = "e" * 64
CONTRACT, OTHER_CONTRACT = digest(b"one"), digest(b"two")
DIMENSION = 24


def clustered(num_vectors: int, seed: int = 0, dimension: int = DIMENSION) -> np.ndarray:
    """Unit vectors around a few centres, `[num_vectors, dimension]`."""
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((max(1, num_vectors // 12), dimension))
    vectors = centres[draw.integers(0, len(centres), num_vectors)] + 0.5 * draw.standard_normal(
        (num_vectors, dimension)
    )
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("<f4")


def entry_of(number: int, vector: np.ndarray | bytes | None, contract: str = CONTRACT, **fields) -> Entry:
    partition = fields.pop("partition", ACME)
    values = {
        "entry_id": f"entry-{number}",
        "partition": partition,
        "contract": contract,
        "exact": digest(partition.digest.encode(), contract.encode(), str(number).encode()),
        "question": f"question {number}",
        "answer": "answer",
        "finish_reason": "stop",
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "model": "m",
        "created_at_s": 0.0,
        "expires_at_s": 1e12,
        "stale_until_s": 1e12,
        "vector": vector if vector is None or isinstance(vector, bytes) else vector.astype("<f4").tobytes(),
        "encoder": None if vector is None else ENCODER,
    }
    return Entry(**(values | fields))


def found(index: FaissIndex, vector: np.ndarray, num: int = 8, contract: str = CONTRACT, partition=ACME) -> list[str]:
    candidates = index.search(partition, contract, vector.astype("<f4").tobytes(), ENCODER, num)
    return [candidate.entry.entry_id for candidate in candidates]
