"""The trained parts of the local verifier, as one file of arrays beside this one."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from cachestack.errors import ModelError
from cachestack.semantic.guards import FEATURE_NAMES
from cachestack.semantic.states import Basis
from cachestack.semantic.verifiers import alignment
from cachestack.semantic.verifiers.head import WEIGHTS, Head
from cachestack.semantic.verifiers.trees import Trees

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 2
ENCODER = "all-minilm-l6-v2"
"""The encoder whose word states it reads."""
LANGUAGES = ("en", "fr")
"""What it was trained and measured in. The encoder itself was trained for English alone."""
FILE = "local.npz"
TREE_ARRAYS = ("feature", "threshold", "left", "right", "value", "roots")


@dataclass(frozen=True, slots=True, eq=False)
class Artefact:
    """`with_states`, for texts whose word states are kept: trees over guard features, alignment features, cosine and
    the heads' mean score. `words_only`, for every other encoder: trees over guard features alone.

    `card` says what it was trained on, and its metrics. `encoder_sha256` is of the weights that `basis` belongs to.
    """

    basis: Basis
    heads: tuple[Head, Head]
    with_states: Trees
    words_only: Trees
    scales: Mapping[str, tuple[float, float]]
    """For each set of trees the slope and intercept that make of its log-odds those of the validation part."""
    shifts: Mapping[str, Mapping[str, float]]
    """For each set of trees and each language what is added to that, so that one threshold lets as many different pairs
    through in each."""
    encoder_sha256: str
    card: Mapping[str, Any]


def log_odds(artefact: Artefact, name: str, raw: float, language: str | None) -> float:
    """From what a set of trees says of a pair in one language (None: in two, or in an unknown one)."""
    slope, intercept = artefact.scales[name]
    return slope * raw + intercept + artefact.shifts[name].get(language or "", 0.0)


def feature_names(with_states: bool) -> tuple[str, ...]:
    """The columns of a row of features, in order."""
    return (*FEATURE_NAMES, *alignment.NAMES, "cosine", "head") if with_states else FEATURE_NAMES


@cache
def shipped() -> Artefact:
    """The one that comes with the package. Raises ModelError where the file does not fit this version."""
    return read(files(__package__).joinpath("data", FILE).read_bytes())


def read(data: bytes) -> Artefact:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        meta = json.loads(str(arrays["meta"]))
        if meta["format"] != FORMAT:
            raise ModelError(f"the local verifier has format {meta['format']}; this version reads {FORMAT}")
        for name in ("with_states", "words_only"):
            if meta["features"][name] != list(feature_names(name == "with_states")):
                raise ModelError("the local verifier was trained on other features than this version computes")
        return Artefact(
            basis=Basis(arrays["mean"], arrays["directions"].astype(np.float32)),
            heads=(Head.of(arrays, "head_0"), Head.of(arrays, "head_1")),
            with_states=_trees(arrays, "with_states", meta),
            words_only=_trees(arrays, "words_only", meta),
            scales={name: (float(a), float(b)) for name, (a, b) in meta["scales"].items()},
            shifts=meta["shifts"],
            encoder_sha256=meta["encoder_sha256"],
            card=meta["card"],
        )


def write(artefact: Artefact) -> bytes:
    """The same bytes for the same artefact."""
    arrays: dict[str, NDArray[Any]] = {"mean": artefact.basis.mean, "directions": artefact.basis.directions}
    meta: dict[str, Any] = {
        "format": FORMAT,
        "features": {name: list(feature_names(name == "with_states")) for name in ("with_states", "words_only")},
        "scales": {name: list(pair) for name, pair in artefact.scales.items()},
        "shifts": {name: dict(by_language) for name, by_language in artefact.shifts.items()},
        "encoder_sha256": artefact.encoder_sha256,
        "card": artefact.card,
        "trees": {},
    }
    for number, head in enumerate(artefact.heads):
        arrays |= {f"head_{number}_{name}": getattr(head, name) for name in WEIGHTS}
    for name, trees in (("with_states", artefact.with_states), ("words_only", artefact.words_only)):
        arrays |= {f"{name}_{part}": getattr(trees, part) for part in TREE_ARRAYS}
        meta["trees"][name] = {"base": trees.base, "depth": trees.depth}
    file = io.BytesIO()
    whole: dict[str, Any] = {"meta": np.array(json.dumps(meta, sort_keys=True)), **dict(sorted(arrays.items()))}
    np.savez_compressed(file, **whole)
    return file.getvalue()


def _trees(arrays: Any, name: str, meta: Mapping[str, Any]) -> Trees:
    parts = {part: arrays[f"{name}_{part}"] for part in TREE_ARRAYS}
    return Trees(**parts, base=float(meta["trees"][name]["base"]), depth=int(meta["trees"][name]["depth"]))
