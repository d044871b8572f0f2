"""A report's JSON document that was kept in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cachestack.errors import InputFileError

FORMAT = 1
NEEDED = {"prefix", "machine", "fork", "lookup", "targets", "interval", "agreement", "cold_publish_by_length"}


def read_document(file: Path) -> dict[str, Any]:
    """Raises InputFileError for what `cachestack bench prefix --json` did not print."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputFileError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputFileError(f"{file} is no JSON document: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT or NEEDED - document.keys():
        raise InputFileError(f"{file} is not what `cachestack bench prefix --json` of this version prints")
    return document
