"""A linear model over cues, pairs of cues and words: how likely it is that an answer moves, and that it moves fast.

Its weights ship with the package, in one file of arrays; `python -m cachestack.training freshness` makes it anew.
"""

from __future__ import annotations

import io
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

from cachestack.errors import ModelError
from cachestack.semantic.freshness.cues import cues

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1
FILE = "freshness.npz"
NUM_BUCKETS = 2**15
THRESHOLDS = ("unsure_from", "sure_from", "fast_from")
_PIECE = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
_YEAR = re.compile(r"(?:1[0-9]|20)\d\d")


@dataclass(frozen=True, slots=True, eq=False)
class FreshnessModel:
    """`weights` `[2, buckets]`: log-odds that the answer moves at all, and that it moves fast; `bias` `[2]`.

    `unsure_from` and `sure_from`: log-odds of moving from which it may move, and from which it does. `fast_from`:
    log-odds of moving fast from which it does. `card`: what it was trained on, and its metrics.
    """

    weights: NDArray[np.float32]
    bias: tuple[float, float]
    unsure_from: float
    sure_from: float
    fast_from: float
    card: Mapping[str, Any]

    def log_odds(self, text: str, names: Iterable[str]) -> tuple[float, float]:
        """Of moving at all, and of moving fast. `text` is folded."""
        found = self.weights[:, sorted(buckets_of(text, names))].sum(axis=1)
        return float(found[0]) + self.bias[0], float(found[1]) + self.bias[1]


def buckets_of(text: str, names: Iterable[str]) -> set[int]:
    """Where in the weights the features of folded text are. A number is a number, a year a year."""
    names = sorted(names)
    words = ["<", *(_shape(piece) for piece in _PIECE.findall(text)), ">"]
    features = [f"cue {name}" for name in names]
    features += [f"cues {one} {other}" for one, other in combinations(names, 2)]
    features += [f"word {word}" for word in words]
    features += [f"words {one} {other}" for one, other in pairwise(words)]
    return {zlib.crc32(feature.encode("utf-8", "surrogatepass")) % NUM_BUCKETS for feature in features}


def probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, log_odds))))


@cache
def shipped() -> FreshnessModel:
    """The one that comes with the package. Raises ModelError where the file does not fit this version."""
    return read(files(__package__).joinpath("data", FILE).read_bytes())


def read(data: bytes) -> FreshnessModel:
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        meta = json.loads(str(arrays["meta"]))
        if meta["format"] != FORMAT or meta["cues"] != list(cues().by_name):
            raise ModelError("the freshness model was trained for another version; run the training again")
        first, second = meta["bias"]
        weights = arrays["weights"].astype(np.float32)
        thresholds = meta["thresholds"]
    return FreshnessModel(
        weights,
        (first, second),
        unsure_from=thresholds["unsure_from"],
        sure_from=thresholds["sure_from"],
        fast_from=thresholds["fast_from"],
        card=meta["card"],
    )


def write(model: FreshnessModel) -> bytes:
    """The same bytes for the same model."""
    import numpy as np

    meta = {
        "format": FORMAT,
        "cues": list(cues().by_name),
        "bias": list(model.bias),
        "thresholds": {name: getattr(model, name) for name in THRESHOLDS},
        "card": model.card,
    }
    file = io.BytesIO()
    whole: dict[str, Any] = {
        "meta": np.array(json.dumps(meta, sort_keys=True)),
        "weights": model.weights.astype(np.float16),
    }
    np.savez_compressed(file, **whole)
    return file.getvalue()


def _shape(piece: str) -> str:
    if not piece[0].isdigit():
        return piece
    return "#year" if _YEAR.fullmatch(piece) else "#"
