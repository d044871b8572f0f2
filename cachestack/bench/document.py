"""A report's JSON document that was kept in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, ValidationError

from cachestack.errors import InputFileError

FORMAT = 1
Length = Annotated[str, StringConstraints(pattern=r"^\d+$")]


class _Form(BaseModel):
    """What is shown of a document; all else in it is passed over."""

    model_config = ConfigDict(strict=True)


class _RatioForm(_Form):
    median: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat


class _AgreementForm(_Form):
    max_difference: Annotated[dict[str, float], Field(min_length=1)]
    same_argmax: bool
    cold_equals_warm: bool
    compared: int
    peer_same_argmax: float | None = None


class _PrefixForm(_Form):
    whole_ms: FiniteFloat
    recipe_ms: FiniteFloat
    single_ms: FiniteFloat
    packed_ms: FiniteFloat
    floor_ms: FiniteFloat
    peer_ms: FiniteFloat | None = None
    ceiling: FiniteFloat
    ratios: Annotated[dict[str, _RatioForm], Field(min_length=1)]
    pack_items: int
    reps: int
    agreement: _AgreementForm


class _CopiedForm(_Form):
    fork: int
    single: int
    packed: int


class _ForkForm(_Form):
    prefix_bytes: int
    copied_bytes: _CopiedForm


class _IntervalForm(_Form):
    kind: str
    coverage: float


class _MachineForm(_Form):
    cpu: str
    cores: int
    threads: int
    os: str
    model: str
    dtype: str
    attention: str
    flags: dict[str, Any]
    versions: dict[str, str]
    load_average: float | None
    busy: bool


class _HoldsForm(_Form):
    holds: bool


class _TargetForm(_Form):
    name: str
    value: FiniteFloat
    sense: Literal["at most", "at least"]
    bound: FiniteFloat
    met: bool


class _OperatorForm(_Form):
    name: str
    share: float
    calls: float


class _PeerForm(_Form):
    name: str
    version: str
    weights: str
    threads: int
    flash_attention: bool
    way: str


class _DocumentForm(_Form):
    format: Literal[1]
    prefix: Annotated[dict[Length, _PrefixForm], Field(min_length=1)]
    miss_overhead: _RatioForm
    miss_overhead_keeping_all: _RatioForm
    cold_publish_by_length: dict[Length, _RatioForm]
    fork: _ForkForm
    lookup: dict[str, Any]
    agreement: _HoldsForm
    suffix_tokens: int
    interval: _IntervalForm
    machine: _MachineForm
    quick: bool
    targets: list[_TargetForm]
    profile: dict[str, dict[str, list[_OperatorForm]]] = {}
    peer: _PeerForm | None = None


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def read_document(file: Path) -> dict[str, Any]:
    """Raises InputFileError for what `cachestack bench prefix --json` did not print."""
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"), parse_constant=_refused)
    except OSError as error:
        raise InputFileError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{file} is no JSON document: {error}") from error
    try:
        form = _DocumentForm.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise InputFileError(
            f"{file} is not what `cachestack bench prefix --json` of this version prints"
            + (f" ({place}: {first['msg']})" if place else "")
        ) from None
    if form.peer is not None and any(of.agreement.peer_same_argmax is None for of in form.prefix.values()):
        raise InputFileError(f"{file} has a peer, and not for each prefix how often it agrees (peer_same_argmax)")
    assert isinstance(document, dict), "validated"
    return document
