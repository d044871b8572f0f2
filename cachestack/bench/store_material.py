"""What `cachestack bench store` fills stores with: no model is needed, the vectors are drawn.

1,000 questions at random unit vectors, and variations of them with a reference number at the question's vector plus
noise (see semantic_material.py). What is searched for is a kept vector, so that the entry itself is nearest.
"""

from __future__ import annotations

import numpy as np

from cachestack.bench.semantic_material import Population, Question

DIMENSION = 384
ENCODER = "e" * 64
_NUM_QUESTIONS = 1000
_STATES_BYTES = 900


def population(num_entries: int) -> Population:
    """The same in every process."""
    draw = np.random.default_rng(1)
    vectors = draw.standard_normal((_NUM_QUESTIONS, DIMENSION)).astype("<f4")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kept = [
        Question(f"What is the answer to question {number}?", vector.tobytes(), ENCODER, b"s" * _STATES_BYTES)
        for number, vector in enumerate(vectors)
    ]
    return Population(kept, num_entries)
