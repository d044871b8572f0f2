"""What a vector is here: float32, of length 1, compared by the cosine; higher is closer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NORM_TOLERANCE = 1e-3

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Near:
    """An id and its inner product with what was searched for, as exact as the place it was found in."""

    entry_id: str
    score: float


def cosine(one: Floats, other: Floats) -> float:
    """Of two unit vectors: their inner product, at most 1. The only line that says what similarity is."""
    return max(-1.0, min(1.0, float(np.dot(one.astype(np.float64), other.astype(np.float64)))))


def to_vector(data: bytes | None, dimension: int) -> Floats | None:
    """The vector that the bytes hold, `[dimension]`; None unless it has this length, is finite and a unit vector."""
    if data is None or len(data) != 4 * dimension:
        return None
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    return vector if bool(are_unit(vector[None])[0]) else None


def to_bytes(vector: Floats) -> bytes:
    """Little-endian float32, as entries keep it."""
    return vector.astype("<f4", copy=False).tobytes()


def are_unit(vectors: Floats) -> NDArray[np.bool_]:
    """For each row whether it is finite and of length 1."""
    with np.errstate(all="ignore"):  # a row that is not finite is the question, not an accident
        squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        unit: NDArray[np.bool_] = np.abs(np.sqrt(squares) - 1.0) <= NORM_TOLERANCE
    return unit
