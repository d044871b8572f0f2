"""Reads the request log while it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cachestack.observing.request_log import LINE_VERSION, log_files

Line = dict[str, Any]


class LogReader:
    """Each call of `new` gives the lines that came since the one before, in the order in which they were written.

    What is not yet written to its end is left for the next call. `num_skipped` lines were cut off, or another
    version's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[int, int] = {}
        self.num_skipped = 0

    def new(self) -> Iterator[Line]:
        for number, path in log_files(self._folder):
            try:
                with path.open("rb") as file:
                    file.seek(self._offsets.get(number, 0))
                    for raw in file:
                        if not raw.endswith(b"\n"):
                            break
                        self._offsets[number] = self._offsets.get(number, 0) + len(raw)
                        line = _parsed(raw)
                        if line is not None:
                            yield line
                        else:
                            self.num_skipped += 1
            except FileNotFoundError:  # its turn to go had come
                continue


def _parsed(raw: bytes) -> Line | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) and line.get("v") == LINE_VERSION else None
