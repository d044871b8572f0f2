"""The policies in force: fixed, or those of a file that may change while requests are served."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cachestack.policy_set import DEFAULT, PolicySet
from cachestack.watched_file import WatchedFile


@dataclass(frozen=True, slots=True)
class PolicyState:
    """Which policies are in force. `loaded_at_s`: seconds since the epoch; `error`: why a newer file is not used."""

    source: str
    loaded_at_s: float
    error: str | None = None


class PolicyWatch:
    """Gives each request the policies of the moment; a request keeps those that it began with.

    Of a path, the file is looked at every half a second while requests come, and loaded again when it has changed and
    is at rest. A bad file keeps the former policies; the log and `state()` say why. Raises PolicyError where the first
    load fails. `wall_clock` in seconds since the epoch; `clock` only moves forward.
    """

    def __init__(
        self,
        policies: str | Path | PolicySet | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._file: WatchedFile[tuple[PolicySet, float]] | None = None
        if isinstance(policies, PolicySet) or policies is None or str(policies) == DEFAULT:
            fixed = policies if isinstance(policies, PolicySet) else PolicySet.load()
            self._fixed = (fixed, wall_clock())
        else:
            self._file = WatchedFile(
                Path(policies).absolute(),
                lambda file: (PolicySet.load(file), wall_clock()),
                what="policies",
                clock=clock,
            )
            self._fixed = self._file.value()

    def current(self) -> PolicySet:
        return (self._fixed if self._file is None else self._file.value())[0]

    def state(self) -> PolicyState:
        policies, loaded_at_s = self._fixed if self._file is None else self._file.value()
        return PolicyState(policies.source, loaded_at_s, None if self._file is None else self._file.error)
