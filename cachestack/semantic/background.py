"""Work that no request waits for: one thread, one job after the other."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

ShouldStop = Callable[[], bool]
Job = Callable[[ShouldStop], None]


class Background:
    """A daemon thread that begins with the first job and ends when none is left.

    A job gets a function that says whether it should stop; what it raises goes to `on_error`.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()  # guards the two below
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def submit(self, key: Hashable, job: Job) -> bool:
        """False, and nothing happens, where a job of this key waits or runs already."""
        if os.getpid() != self._process:
            self._begin_anew()  # forked: the thread, and maybe a lock that it held, are the parent's
        with self._changed:
            if key in self._jobs:
                return False
            self._jobs[key] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cachestack-index", daemon=True)
                self._thread.start()
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until nothing is left to do; False where that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout_s)

    def close(self) -> None:
        """Drop what waits, ask what runs to stop, and wait for that. Later jobs are taken again."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._stopping.set()
            if self._thread is not threading.current_thread():
                self._changed.wait_for(lambda: self._thread is None)
            self._stopping.clear()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopping.is_set():
                    self._jobs.clear()
                if not self._jobs:
                    self._thread = None
                    self._changed.notify_all()
                    return
                key, job = next(iter(self._jobs.items()))
            try:
                job(self._stopping.is_set)
            except Exception as error:
                self._on_error(error)
            with self._changed:
                self._jobs.pop(key, None)
