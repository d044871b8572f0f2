"""Makes keys until it is killed, and says after each that it is made, before and after the next begins.

python key_maker.py HOME
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cachestack.access import KeyStore


def main(home: str) -> None:
    store, number = KeyStore(Path(home)), 0
    while True:
        number += 1
        key, _ = store.create(f"tenant-{number}")
        os.write(1, f"{number} {key}\n".encode())
        if number % 3 == 0:
            store.revoke(key)
            os.write(1, f"revoked {number}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1])
