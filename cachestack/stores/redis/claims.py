"""Who answers a question, among processes: one claims it, the others wait for its entry.

A claim runs out `LIFE_S` after its process was last alive, so that a leader that was killed holds nobody up for
longer. One thread renews the claims of its process and gives back those that have ended. A leader that was taken for
dead and comes back does no harm: its answer does not replace one that was asked for later (`keep_newer`).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

from cachestack.errors import StoreError
from cachestack.keys import Partition
from cachestack.stores.base import TAKEN, Taken
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.names import Names, text_digest

LIFE_S = 6.0
RENEW_EVERY_S = 1.5
_TOLD_MS = 2000
_NONE = b"none"


class HeldClaim:
    """A Claim. Nothing here waits for Redis."""

    def __init__(self, claims: RedisClaims, key: bytes) -> None:
        self.key = key
        self.token = secrets.token_hex(16)
        self._claims = claims

    def end(self, *, is_kept: bool) -> None:
        self._claims.give_back(self, is_kept=is_kept)


class RedisClaims:
    def __init__(self, link: Link, names: Names, *, life_s: float = LIFE_S) -> None:
        self._link = link
        self._names = names
        self._life_ms = int(life_s * 1000)
        self._renew_every_s = min(RENEW_EVERY_S, life_s / 4)
        self._lock = threading.Lock()  # guards the three below
        self._held: set[HeldClaim] = set()
        self._ended: list[tuple[HeldClaim, bool]] = []
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._closed = False

    def claim(self, partition: Partition, exact: str) -> HeldClaim | Taken | None:
        """TAKEN: another process is at it. None: who asks goes on by itself. Raises StoreError."""
        if self._closed:
            return None
        key = self._names.slot_of(partition, text_digest(exact)).tag + b"c" + text_digest(exact)
        made = HeldClaim(self, key)

        def take(client: object) -> tuple[bool, bytes | None]:
            with client.pipeline(transaction=True) as pipeline:  # type: ignore[attr-defined]
                pipeline.set(key, made.token, nx=True, px=self._life_ms)
                pipeline.get(key)
                is_taken, there = pipeline.execute()
                return bool(is_taken), there

        is_mine, there = self._link.run(take)
        if is_mine:
            with self._lock:
                self._held.add(made)
                self._start()
            return made
        return None if there == _NONE else TAKEN

    def give_back(self, claim: HeldClaim, *, is_kept: bool) -> None:
        with self._lock:
            self._held.discard(claim)
            self._ended.append((claim, is_kept))
        self._woken.set()

    def close(self) -> None:
        """Give back what has ended. What is still held runs out."""
        with self._lock:
            self._closed = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        """With the lock held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._look_after, name="cachestack-claims", daemon=True)
            self._thread.start()

    def _look_after(self) -> None:
        while True:
            self._woken.wait(self._renew_every_s)
            self._woken.clear()
            with self._lock:
                ended, self._ended = self._ended, []
                held, closed = tuple(self._held), self._closed
            self._end(ended)
            self._renew(held)
            if closed:
                return

    def _end(self, ended: Sequence[tuple[HeldClaim, bool]]) -> None:
        for claim, is_kept in ended:
            try:
                self._link.script("claim_end", [claim.key], [claim.token, 0 if is_kept else _TOLD_MS])
            except StoreError:
                return  # they run out

    def _renew(self, held: Sequence[HeldClaim]) -> None:
        for claim in held:
            try:
                self._link.script("claim_renew", [claim.key], [claim.token, self._life_ms])
            except StoreError:
                return
