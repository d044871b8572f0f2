"""The two folders: models (deleting it only costs time) and state (entries, indexes, statistics, reports)."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cachestack.errors import ConfigError, StoreError

MODELS_VARIABLE = "CACHESTACK_MODELS"
HOME_VARIABLE = "CACHESTACK_HOME"


def models_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`CACHESTACK_MODELS`, or `cachestack/models` in the platform's cache folder. Not created here."""
    from platformdirs import user_cache_path

    return _from_variable(MODELS_VARIABLE, environ) or user_cache_path("cachestack", appauthor=False) / "models"


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`CACHESTACK_HOME`, or `cachestack` in the platform's data folder. Not created here."""
    from platformdirs import user_data_path

    return _from_variable(HOME_VARIABLE, environ) or user_data_path("cachestack", appauthor=False)


def _from_variable(variable: str, environ: Mapping[str, str]) -> Path | None:
    """The folder that the variable names, absolute; `None` when it is unset or empty."""
    value = environ.get(variable, "")
    if not value:
        return None
    try:
        folder = Path(value).expanduser().absolute()
    except RuntimeError as error:  # an unknown user after the tilde, or no home folder
        raise ConfigError(f"{variable}={value}: {error}; give an absolute path") from error
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{variable}={value} is a file; give a folder, or unset {variable} for the default")
    return folder


def lasting_secret(folder: Path) -> bytes:
    """32 random bytes that all processes of a state folder share; made at the first call, readable by its owner only.

    Raises StoreError where the folder cannot be used.
    """
    path = folder / "secret"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            handle, fresh = tempfile.mkstemp(dir=folder)  # whole before it has its name: nobody reads half of it
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(32))
            with contextlib.suppress(FileExistsError):  # another process was first: its secret holds
                os.link(fresh, path)
            os.unlink(fresh)
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"the state folder {folder} cannot keep a secret: {error}") from error
