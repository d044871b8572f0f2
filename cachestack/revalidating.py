"""New answers made in the background, while stale ones are served.

A thread each, or, where the asker runs on an event loop, a task of that loop. At most one for a question, few at a
time; who comes when there are enough goes without. One that fails leaves the stale answer where it is, and is not tried
again for a while. Closing asks all of them to stop and waits for them.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from cachestack.adriver import adrive
from cachestack.decisions import Response
from cachestack.driver import Drive, drive
from cachestack.effects import Revalidate
from cachestack.engines.base import Engine, anew
from cachestack.errors import LimitExceeded
from cachestack.performer import Performer
from cachestack.pipeline import Run
from cachestack.requests import Request

MAX_AT_ONCE = 8
REST_S = 5.0
"""How long a question is left alone whose new answer has failed."""
CLOSE_WAIT_S = 5.0
"""How long closing waits for engines that do not give way; what they bring later is not kept."""
_MAX_RESTING = 1024

log = logging.getLogger("cachestack")
Charge = Callable[[Response], None]
Admit = Callable[[Request], AbstractContextManager[Charge]]
Opened = tuple[Run, Mapping[str, Engine]]
Fate = Literal["done", "failed", "limited", "stopped", "busy"]


@contextmanager
def free(request: Request) -> Iterator[Charge]:
    """Nobody counts."""
    yield lambda response: None


@dataclass(slots=True, eq=False)
class _Job:
    effect: Revalidate
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    task: asyncio.Task[None] | None = None
    fate: Fate = "stopped"


class Revalidations:
    """Those of one stack. `opened` gives the run that makes a new answer, `tell` is told how each has ended.

    `admit` is asked before each, and told what it took: it raises LimitExceeded where a limit forbids it.
    """

    def __init__(
        self,
        opened: Callable[[Request, Engine], Opened],
        performer: Performer,
        tell: Callable[[str, Fate], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.admit: Admit = free
        self._opened, self._performer, self._tell, self._clock = opened, performer, tell, clock
        self._closed = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._jobs: dict[Hashable, _Job] = {}
        self._failed_s: OrderedDict[Hashable, float] = OrderedDict()

    def in_thread(self, effect: Revalidate) -> None:
        """Begin, if it is time to. Never waits, never raises."""
        job = self._begin(effect)
        if job is None:
            return
        job.thread = threading.Thread(target=self._in_thread, args=(job,), name="cachestack-refresh", daemon=True)
        try:
            job.thread.start()
        except RuntimeError:  # the interpreter is ending, or the system has no more threads
            self._end(job)

    def in_task(self, effect: Revalidate) -> None:
        """As `in_thread`, on the running loop."""
        job = self._begin(effect)
        if job is None:
            return
        job.task = asyncio.get_running_loop().create_task(self._in_task(job), context=contextvars.Context())
        job.task.add_done_callback(lambda done: self._end(job))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until nothing is under way; False where that took too long. Not for an event loop."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs, timeout_s)

    async def cancel_here(self) -> None:
        """End those of the running loop, which is about to end itself."""
        loop = asyncio.get_running_loop()
        with self._changed:
            mine = [job.task for job in self._jobs.values() if job.task is not None and job.task.get_loop() is loop]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        with self._changed:
            self._closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.stop.set()
            if job.task is not None:
                with suppress(RuntimeError):  # its loop was closed
                    job.task.get_loop().call_soon_threadsafe(job.task.cancel)
        end_s = time.monotonic() + CLOSE_WAIT_S
        for job in jobs:
            if job.thread is not None and job.thread is not threading.current_thread() and job.thread.is_alive():
                job.thread.join(max(0.0, end_s - time.monotonic()))

    def _begin(self, effect: Revalidate) -> _Job | None:
        if os.getpid() != self._process:
            self._begin_anew()  # forked: what is under way is the parent's
        with self._changed:
            since_s = self._failed_s.get(effect.key)
            if since_s is not None and 0 <= self._clock() - since_s < REST_S:
                return None
            if self._closed or effect.key in self._jobs:
                return None
            if len(self._jobs) < MAX_AT_ONCE:
                self._failed_s.pop(effect.key, None)
                job = self._jobs[effect.key] = _Job(effect)
                return job
        self._tell(effect.request.tenant, "busy")
        return None

    def _in_thread(self, job: _Job) -> None:
        try:
            with self.admit(job.effect.request) as charge:
                run, engines = self._opened(job.effect.request, anew(job.effect.by))
                response = _to_the_end(drive(run, self._performer, engines, streams=False), job.stop)
                if response is not None:
                    charge(response)
                    job.fate = "done"
        except Exception as error:
            job.fate = _fate_of(error)
        finally:
            self._end(job)

    async def _in_task(self, job: _Job) -> None:
        try:
            with self.admit(job.effect.request) as charge:
                run, engines = self._opened(job.effect.request, anew(job.effect.by))
                async with aclosing(adrive(run, self._performer, engines, streams=False)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Response):
                            charge(piece)
                            job.fate = "done"
        except Exception as error:
            job.fate = _fate_of(error)

    def _end(self, job: _Job) -> None:
        self._tell(job.effect.request.tenant, job.fate)
        with self._changed:
            if job.fate in ("failed", "limited"):
                self._failed_s[job.effect.key] = self._clock()
                if len(self._failed_s) > _MAX_RESTING:
                    self._failed_s.popitem(last=False)
            self._jobs.pop(job.effect.key, None)
            self._changed.notify_all()


def _to_the_end(pieces: Drive, stop: threading.Event) -> Response | None:
    """None: it was asked to stop."""
    with closing(pieces):
        while not stop.is_set():
            try:
                next(pieces)
            except StopIteration as ended:
                response: Response = ended.value
                return response
    return None


def _fate_of(error: Exception) -> Fate:
    if isinstance(error, LimitExceeded):
        return "limited"
    log.info("a new answer could not be made in the background, the old one stays: %s", error)
    return "failed"
