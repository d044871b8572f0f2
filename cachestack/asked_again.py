"""A Request that is asked again, as it is: what was read in it, and what its last answer was made of."""

from __future__ import annotations

from cachestack.decisions import Reason
from cachestack.engines.base import Engine
from cachestack.entries import Entry
from cachestack.policy import Policy
from cachestack.requests import Request
from cachestack.semantic.layer import Asked
from cachestack.serving import Served

Read = tuple[Request, Asked | None, Reason | None]
"""The request completed; as the semantic layer sees it, or why it does not."""
_MAX_SERVED_CHARS = 8 * 1024
"""A longer answer is not held by each reading of it."""


class Reading:
    """What the pipeline read in a Request, for when the very same is asked again: keys are not computed twice."""

    __slots__ = ("_kept", "_served")

    def __init__(self) -> None:
        self._served: Served | None = None
        self._kept: tuple[Request, Policy, Engine, Read] | None = None

    def found(self, request: Request, policy: Policy, primary: Engine) -> Read | None:
        """None under another policy, or for another engine."""
        if self._kept is None:
            return None
        of, under, by, read = self._kept
        return read if of is request and under is policy and by is primary else None

    def keep(self, request: Request, policy: Policy, primary: Engine, read: Read) -> None:
        self._kept = (request, policy, primary, read)

    def served(self, entry: Entry, model: str) -> Served:
        """This request's exact hits."""
        served = self._served
        if served is None or served.entry is not entry or served.model != model:
            served = Served(entry, model)
            self._served = served if len(entry.answer) <= _MAX_SERVED_CHARS else None
        return served

    def may_hit(self, request: Request, policy: Policy, primary: Engine) -> tuple[Request, Asked] | None:
        """What is to be looked up for a request that was read before, where it is looked up at all."""
        read = self.found(request, policy, primary)
        if read is None or read[1] is None or not request.lookup:
            return None
        return read[0], read[1]
