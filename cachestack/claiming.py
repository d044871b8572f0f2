"""One process answers a question, the others wait for its entry: single flight beyond one process."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from cachestack.decisions import Hit
from cachestack.effects import ClaimQuestion, Effect, Pause
from cachestack.entries import Entry
from cachestack.errors import StoreError
from cachestack.policy import Policy
from cachestack.semantic.layer import Asked
from cachestack.semantic.scopes import find_live_exact
from cachestack.stores.base import TAKEN, Claim, Taken

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.1
MAX_WAIT_S = 120.0
"""How long another process is waited for, as long as it is alive; after that the engine is called here too."""


def claimed(
    asked: Asked, policy: Policy, clock: Callable[[], float]
) -> Generator[Effect, Any, Claim | Hit[Entry] | None]:
    """A claim, to be ended; or a hit on what another process has published while it was waited for; or None: go on
    without. A store that fails is not waited for. Who gets a claim looks again: the one before may just have ended."""
    pause_s, waited_s = FIRST_PAUSE_S, 0.0
    while True:
        try:
            claim: Claim | Taken | None = yield ClaimQuestion(asked.partition, asked.exact)
            if waited_s or not isinstance(claim, Taken | None):
                hit = yield from find_live_exact(asked, policy, clock(), own_too=False)
                if hit is not None:
                    if not isinstance(claim, Taken | None):
                        claim.end(is_kept=True)
                    return hit
        except StoreError:
            return None
        if not isinstance(claim, Taken) or waited_s >= MAX_WAIT_S:
            return None if claim is TAKEN else claim
        yield Pause(pause_s)
        waited_s += pause_s
        pause_s = min(LONGEST_PAUSE_S, 1.5 * pause_s)
