"""`python -m cachestack`."""

from __future__ import annotations

from cachestack.cli.app import run

if __name__ == "__main__":
    run()
