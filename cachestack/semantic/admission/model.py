"""A linear model over an answer and its question: how likely it is that it is none, and what it is then.

Its weights ship with the package, in one file of arrays; `python -m cachestack.training admission` makes it anew.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cachestack.errors import ModelError
from cachestack.semantic.admission.features import NUM_BUCKETS, features

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1
FILE = "admission.npz"
KINDS = ("refusal", "error", "cut_off", "asks_back")


@dataclass(frozen=True, slots=True)
class Judgement:
    """`probability` that it is no answer; `kind`: what it is then, most likely."""

    probability: float
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class AdmissionModel:
    """`weights` `[1 + kinds, buckets]` and `bias` `[1 + kinds]`: log-odds of being no answer, then of each of KINDS.

    `slope` and `offset` make a probability of the first (Platt's). `refuse_from`: the probability from which an answer
    is not kept. `card`: what it was trained on, and its metrics.
    """

    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    slope: float
    offset: float
    refuse_from: float
    card: Mapping[str, Any]

    def judge(self, question: str, answer: str, rules: Sequence[str] = ()) -> Judgement:
        found = features(question, answer, rules)
        buckets, values = list(found), list(found.values())
        scores = (self.weights[:, buckets] @ _array(values) + self.bias).tolist()
        kind = KINDS[max(range(len(KINDS)), key=lambda n: scores[n + 1])]
        return Judgement(self.probability(scores[0]), kind)

    def probability(self, log_odds: float) -> float:
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, self.slope * log_odds + self.offset))))


@cache
def shipped() -> AdmissionModel:
    """The one that comes with the package. Raises ModelError where the file does not fit this version."""
    return read(files(__package__).joinpath("data", FILE).read_bytes())


def read(data: bytes) -> AdmissionModel:
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        meta = json.loads(str(arrays["meta"]))
        weights = arrays["weights"].astype(np.float32)
    if meta["format"] != FORMAT or meta["kinds"] != list(KINDS) or weights.shape != (1 + len(KINDS), NUM_BUCKETS):
        raise ModelError("the admission model was trained for another version; run the training again")
    bias = np.array(meta["bias"], dtype=np.float32)
    return AdmissionModel(weights, bias, meta["slope"], meta["offset"], meta["refuse_from"], meta["card"])


def write(model: AdmissionModel) -> bytes:
    """The same bytes for the same model."""
    import numpy as np

    meta = {
        "format": FORMAT,
        "kinds": list(KINDS),
        "bias": [round(float(one), 4) for one in model.bias],
        "slope": model.slope,
        "offset": model.offset,
        "refuse_from": model.refuse_from,
        "card": model.card,
    }
    file = io.BytesIO()
    whole: dict[str, Any] = {
        "meta": np.array(json.dumps(meta, sort_keys=True)),
        "weights": model.weights.astype(np.float16),
    }
    np.savez_compressed(file, **whole)
    return file.getvalue()


def _array(values: list[float]) -> NDArray[np.float32]:
    import numpy as np

    return np.array(values, dtype=np.float32)
