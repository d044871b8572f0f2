"""The way to a Redis server: a deadline for each command, a rest after a failure, errors of one kind.

A server that is down, slow or full raises StoreError within the deadline, and nothing else; for `rest_s` after that,
every call fails at once, so that requests do not wait one after the other for a server that does not answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any, TypeVar

from cachestack.errors import MissingExtra, StoreError

T = TypeVar("T")
SCRIPTS = (
    *("put", "remove", "revector", "fence", "share", "add", "prolong", "claim_renew", "claim_end"),
    *("audit", "clear", "prune", "recount", "total"),
)


class Link:
    """`url`: `redis://`, `rediss://` (TLS) or `unix://`, with user, password and database where needed."""

    def __init__(
        self,
        url: str,
        *,
        deadline_s: float = 0.5,
        connect_deadline_s: float = 0.5,
        rest_s: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise MissingExtra("redis", "redis") from error
        self._errors = redis.exceptions
        self.url = url
        self._monotonic = monotonic
        self._rest_s = rest_s
        self._rests_until_s = -1.0
        self._why = ""
        self._lock = threading.Lock()
        self._closed = False
        self.num_failures = 0
        self.num_trips = 0
        self._has_vector_sets: bool | None = None
        self.client: Any = redis.Redis.from_url(
            url,
            socket_timeout=deadline_s,
            socket_connect_timeout=connect_deadline_s,
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.exceptions.ConnectionError,)),
            retry_on_timeout=False,
            decode_responses=False,
            protocol=3,
            client_name="cachestack",
        )
        self._scripts = {name: self.client.register_script(_script(name)) for name in SCRIPTS}

    def run(self, call: Callable[[Any], T]) -> T:
        """What `call` returns, given the client. Raises StoreError."""
        if self._closed:
            raise StoreError("the store was closed")
        if self._monotonic() < self._rests_until_s:
            raise StoreError(f"Redis failed a moment ago and is not tried yet: {self._why}")
        self.num_trips += 1
        try:
            return call(self.client)
        except (self._errors.ConnectionError, self._errors.TimeoutError, OSError) as error:
            self._failed(error)
            raise StoreError(f"Redis does not answer: {error}") from error
        except self._errors.RedisError as error:
            self.num_failures += 1
            raise StoreError(f"Redis refused: {error}") from error

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """One of the client's commands, by its method's name. Raises StoreError."""
        return self.run(lambda client: getattr(client, name)(*arguments, **options))

    def has_vector_sets(self) -> bool:
        """Whether the server has them, and this user may use them. Asked once. Raises StoreError."""
        if self._has_vector_sets is None:
            self._has_vector_sets = self.run(self._try_vector_sets)
        return self._has_vector_sets

    def _try_vector_sets(self, client: Any) -> bool:
        try:
            client.execute_command("VCARD", "cachestack:{all}none")
        except self._errors.NoPermissionError:
            return False
        except self._errors.ResponseError as error:
            if "unknown command" in str(error).lower():
                return False
            raise
        return True

    def script(self, name: str, keys: list[bytes], arguments: list[Any]) -> Any:
        """What the script returns. Raises StoreError."""
        return self.run(lambda _: self._scripts[name](keys=keys, args=arguments))

    def pipelined(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Their results, in one round trip. Raises StoreError, where any of them fails."""
        if not commands:
            return []

        def call(client: Any) -> list[Any]:
            with client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                results: list[Any] = pipeline.execute()
                return results

        return self.run(call)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A pipeline whose `execute` runs its commands as one step. Raises StoreError."""
        pipeline = self.run(lambda client: client.pipeline(transaction=True))
        with pipeline:
            execute = pipeline.execute
            pipeline.execute = lambda: self.run(lambda _: execute())
            yield pipeline

    def close(self) -> None:
        self._closed = True
        self.client.close()

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self.num_failures += 1
            self._why = str(error)
            self._rests_until_s = self._monotonic() + self._rest_s


def _script(name: str) -> str:
    return (resources.files("cachestack.stores.redis") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
