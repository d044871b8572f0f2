"""From the name that a user gives to what Transformers can open: a local folder, or a Hugging Face id."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cachestack.errors import MissingExtra, ModelCorrupt, ModelError, ModelNotFound
from cachestack.folders import models_folder
from cachestack.models.catalogue import (
    CATALOGUE,
    DEFAULT_ENCODER,
    DEFAULT_LLM,
    KnownModel,
    ModelKind,
    find_known,
)
from cachestack.models.manifest import read_manifest
from cachestack.models.shelf import ModelShelf, ModelState

REACH_S = 10.0
HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?")
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
WORDS = {ModelKind.LLM: "a language model", ModelKind.ENCODER: "an encoder"}
DEFAULTS = {ModelKind.LLM: DEFAULT_LLM, ModelKind.ENCODER: DEFAULT_ENCODER}


def resolve(
    name: str,
    kind: ModelKind | str,
    *,
    folder: Path | None = None,
    catalogue: Sequence[KnownModel] = CATALOGUE,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """The path of a local folder, or a Hugging Face id that is cached or reachable.

    In this order: a known model that was pulled (by name or alias), an existing folder, a Hugging Face id.
    `folder` is the models folder (default: `CACHESTACK_MODELS`). Raises `ModelNotFound`, `ModelCorrupt`, or
    `ModelError` for a known model of the other kind; each says what to do.
    """
    kind = ModelKind(kind)
    shelf = ModelShelf(folder if folder is not None else models_folder(environ))
    known = find_known(name, catalogue)
    if known is not None:
        if known.kind is not kind:
            raise ModelError(f"{name!r} is {WORDS[known.kind]}; {WORDS[kind]} is needed here, such as {DEFAULTS[kind]}")
        pulled = _pulled(known, shelf)
        if pulled is not None:
            return pulled
    path = Path(os.path.expanduser(name))  # an unknown user stays as written
    if name and path.is_dir():
        return _local(path)
    if _looks_like_path(name, path):
        raise ModelNotFound(f"there is no model folder {name!r}; give the folder that holds its config.json")
    if known is not None and "/" not in name:
        raise ModelNotFound(_advice(f"{known.name} is not in {shelf.folder}", known, kind))
    _require_on_hub(name, kind, known, environ)
    return name


def _pulled(known: KnownModel, shelf: ModelShelf) -> str | None:
    state, path = shelf.state(known), shelf.path(known)
    again = f"`cachestack models pull {known.name}` puts it right"
    if state is ModelState.UNPACKED:
        raise ModelNotFound(f"{known.name} is unpacked in {shelf.folder} but not converted yet; {again}")
    if state is ModelState.DAMAGED:
        if read_manifest(path) is None and (path / "config.json").is_file():
            return str(path)  # put there by hand
        raise ModelCorrupt(f"{known.name} in {path} lacks files or has them cut short; {again}")
    return str(path) if state is ModelState.READY else None


def _local(path: Path) -> str:
    if not (path / "config.json").is_file():
        raise ModelNotFound(f"the folder {path} has no config.json; give the folder of a model in Hugging Face's form")
    return str(path.absolute())


def _looks_like_path(name: str, path: Path) -> bool:
    return path.exists() or path.is_absolute() or name.startswith((".", "~")) or HUB_ID.fullmatch(name) is None


def _require_on_hub(name: str, kind: ModelKind, known: KnownModel | None, environ: Mapping[str, str]) -> None:
    """The model's configuration is in the Hugging Face cache, or the hub says that it has it."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise MissingExtra("huggingface_hub", "local")
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    offline = [variable for variable in OFFLINE_VARIABLES if environ.get(variable, "").upper() in _TRUE]
    if offline:
        why = f"{name!r} is not in the Hugging Face cache, and {offline[0]} is set"
        raise ModelNotFound(_advice(why, known, kind, f"unset {offline[0]}"))
    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=REACH_S)  # a download would retry for long
    except Exception as error:  # a library of many error classes, which change from version to version
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelNotFound(
            _advice(f"{name!r} could not be had from the Hugging Face hub: {said[0]}", known, kind)
        ) from error


_TRUE = {"1", "ON", "YES", "TRUE"}


def _advice(why: str, known: KnownModel | None, kind: ModelKind, *more: str) -> str:
    name = known.name if known is not None else DEFAULTS[kind]
    instead = "" if known is not None else f" and use {name}"
    ways = (f"run `cachestack models pull {name}`{instead}", "give the path of a model folder", *more)
    return f"{why}. Do one of these: {'; '.join(ways)}"
