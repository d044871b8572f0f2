"""What this process takes in memory, as the system counts it."""

from __future__ import annotations

import sys
from pathlib import Path


def resident_bytes() -> int | None:
    """Now; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    import resource

    return pages * resource.getpagesize()


def peak_bytes() -> int | None:
    """The most since it began."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
