"""From a reference to a store: where entries are kept is one text, in code, in a file or in `CACHESTACK_STORE`.

::

    disk:PATH                                 a folder; without a path `entries` in the state folder, the default
    redis://USER:PASSWORD@HOST:PORT/DB        a Redis server; rediss:// with TLS, unix:///PATH/TO/SOCKET
        ?prefix=cachestack:&slots=1           how its keys begin · into how many slots a partition is split
        &deadline_ms=500&memory_bytes=32M     how long a command may take · how much of it is kept in this process

Nothing is connected to here, and nothing is created.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from cachestack.errors import ConfigError
from cachestack.stores.disk import DiskStore
from cachestack.stores.sums import STATS_FOLDER, SumsFile

if TYPE_CHECKING:
    from cachestack.stores.redis.link import Link
    from cachestack.stores.redis.sums import RedisSums
    from cachestack.stores.tiered import TieredStore

VARIABLE = "CACHESTACK_STORE"
ENTRIES_FOLDER = "entries"
DEFAULT_PREFIX = "cachestack:"
_SCHEMES = ("redis", "rediss", "unix")
_PASSED_ON = (
    "db", "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile",
    "ssl_keyfile_password",
)  # fmt: skip
_OWN = ("prefix", "slots", "deadline_ms", "memory_bytes")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_BYTES = re.compile(r"(\d{1,15})([KMG]?)")
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class DiskRef:
    folder: Path

    @property
    def shown(self) -> str:
        return f"disk:{self.folder}"


@dataclass(frozen=True, slots=True)
class RedisRef:
    """`url` is what the Redis client is given; it may hold a password: only `shown` is for eyes."""

    url: str
    prefix: str = DEFAULT_PREFIX
    num_slots: int = 1
    deadline_s: float = 0.5
    memory_bytes: int = 32 * 2**20

    @property
    def shown(self) -> str:
        split = urlsplit(self.url)
        netloc = split.netloc
        if "@" in netloc:
            user, host = netloc.rsplit("@", 1)
            netloc = f"{user.split(':', 1)[0]}:***@{host}" if ":" in user else f"{user}@{host}"
        return f"{split.scheme}://{netloc}{split.path}"

    def __repr__(self) -> str:
        return f"RedisRef({self.shown!r}, prefix={self.prefix!r}, num_slots={self.num_slots})"


StoreRef = DiskRef | RedisRef


def parse_ref(ref: str | None, home: Path, environ: Mapping[str, str] = os.environ) -> StoreRef:
    """None: what `CACHESTACK_STORE` says, else the folder in `home`. Raises ConfigError, without a password in it."""
    origin = "store"
    if ref is None:
        ref, origin = environ.get(VARIABLE) or None, VARIABLE
    if ref is None or ref == "disk:":
        return DiskRef(home / ENTRIES_FOLDER)
    scheme, colon, rest = ref.partition(":")
    if colon and scheme == "disk":
        return DiskRef(Path(rest).expanduser().absolute())
    if not colon or scheme not in _SCHEMES or not rest.startswith("//"):
        raise ConfigError(
            f"{origin}: {_without_password(ref)!r} is no store; give disk:PATH, redis://HOST:PORT/DB, rediss://… (TLS) "
            "or unix:///PATH/TO/SOCKET"
        )
    try:
        return _redis(ref)
    except _Wrong as wrong:
        raise ConfigError(f"{origin}: {_without_password(ref)}: {wrong}") from None
    except ValueError:  # a port that is no number, say: the message may quote the whole
        raise ConfigError(f"{origin}: {_without_password(ref)} is no address of a Redis server") from None


def open_store(ref: str | None, home: Path, clock: Clock = time.time) -> DiskStore | TieredStore:
    """Raises ConfigError, or MissingExtra for Redis without its client."""
    found = parse_ref(ref, home)
    return DiskStore(found.folder, clock) if isinstance(found, DiskRef) else open_redis(found, clock)


def open_sums(ref: str | None, home: Path) -> SumsFile | RedisSums:
    """Where statistics add up: beside shared entries, or in `home`. Raises as `open_store`."""
    found = parse_ref(ref, home)
    if isinstance(found, DiskRef):
        return SumsFile(home / STATS_FOLDER)
    from cachestack.stores.redis.sums import RedisSums

    return RedisSums(_link(found), found.prefix)


def open_redis(ref: RedisRef, clock: Clock = time.time) -> TieredStore:
    from cachestack.stores.redis.store import RedisStore
    from cachestack.stores.tiered import TieredStore

    shared = RedisStore(_link(ref), clock, prefix=ref.prefix, num_slots=ref.num_slots)
    return TieredStore(shared, max_bytes=ref.memory_bytes)


def _link(ref: RedisRef) -> Link:
    from cachestack.stores.redis.link import Link

    try:
        return Link(ref.url, deadline_s=ref.deadline_s, connect_deadline_s=ref.deadline_s)
    except (ValueError, TypeError) as error:  # an option that the client cannot take
        raise ConfigError(f"{ref.shown}: {error}") from None


class _Wrong(ValueError):
    """What is wrong with an option, without the address."""


def _redis(ref: str) -> RedisRef:
    split = urlsplit(ref)
    if split.scheme == "unix" and not split.path.strip("/"):
        raise _Wrong("a unix:// address needs the path of a socket")
    if split.scheme != "unix" and not split.hostname:
        raise _Wrong("an address needs a host")
    _ = split.port
    own: dict[str, str] = {}
    passed: list[tuple[str, str]] = []
    for name, value in parse_qsl(split.query, keep_blank_values=True):
        if name in _OWN:
            own[name] = value
        elif name in _PASSED_ON:
            passed.append((name, value))
        else:
            raise _Wrong(f"unknown option {name!r}; allowed: {', '.join([*_OWN, *_PASSED_ON])}")
    query = f"?{urlencode(passed)}" if passed else ""
    url = f"{split.scheme}://{split.netloc}{split.path}{query}"  # urlunsplit takes the // from unix:///
    return RedisRef(
        url,
        prefix=_prefix(own.get("prefix", DEFAULT_PREFIX)),
        num_slots=_whole("slots", own.get("slots", "1"), 1, 256),
        deadline_s=_whole("deadline_ms", own.get("deadline_ms", "500"), 1, 60_000) / 1000,
        memory_bytes=_bytes(own.get("memory_bytes", "32M")),
    )


def _prefix(text: str) -> str:
    if not text or "{" in text or "}" in text:
        raise _Wrong("prefix must be some text without braces")
    return text


def _whole(name: str, text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise _Wrong(f"{name} must be a whole number from {least} to {most}, not {text!r}")
    return int(text)


def _bytes(text: str) -> int:
    found = _BYTES.fullmatch(text)
    if found is None:
        raise _Wrong(f"memory_bytes must be a number of bytes (1000000, 64M, 1G), not {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def _without_password(ref: str) -> str:
    """Whatever stands before the last @, and behind a ?, is not shown, however odd the text is."""
    scheme, _, _ = ref.partition("://")
    rest = ref if "@" not in ref else f"{scheme}://***@{ref.rpartition('@')[2]}"
    return rest.split("?", 1)[0]
