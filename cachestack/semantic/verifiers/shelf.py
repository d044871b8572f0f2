"""The verifiers that a policy can name, made when first asked, each call with a deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from cachestack.effects import Verify
from cachestack.semantic.verifiers.base import Agreement, TextVerifier

log = logging.getLogger("cachestack")
Make = Callable[[str], TextVerifier]
"""A policy's name of a verifier → the verifier, ready to be asked. It may load a model; it raises where it cannot."""


class VerifierShelf:
    """Asks verifiers by name. Never raises: one that fails, or is not done in time, has not agreed.

    Making a verifier does not count against the deadline. A call that hangs keeps its thread; while one hangs, further
    calls of that verifier are refused at once, so that only those that were under way together are lost.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: dict[str, TextVerifier | Exception] = {}
        self._making: dict[str, threading.Lock] = {}
        self._late: dict[str, list[Future[Agreement]]] = {}

    def verify(self, name: str, cached: str, asked: str, score: float, deadline_s: float) -> Agreement:
        try:
            verifier = self._get(name)
        except Exception as failure:
            return _failed(failure)
        with self._lock:
            self._late[name] = [late for late in self._late.get(name, ()) if not late.done()]
            if self._late[name]:
                return Agreement(False, 0.0, {"error": "an earlier call has not come back"})
        call: Future[Agreement] = Future()
        threading.Thread(target=_run, args=(call, verifier, cached, asked, score), daemon=True).start()
        try:
            return call.result(deadline_s)
        except TimeoutError as failure:
            if call.done():
                return _failed(failure)
            with self._lock:
                self._late[name].append(call)
            return Agreement(False, 0.0, {"error": f"no answer within {deadline_s:g} s"})
        except Exception as failure:
            return _failed(failure)

    def perform(self, effect: Verify) -> Agreement:
        return self.verify(effect.verifier, effect.cached, effect.asked, effect.score, effect.deadline_s)

    def _get(self, name: str) -> TextVerifier:
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        with making:
            found = self._made.get(name)
            if found is None:
                try:
                    found = self._make(name)
                except Exception as failure:
                    log.warning("the verifier %s cannot be used, so that it never agrees: %s", name, failure)
                    found = failure
                self._made[name] = found
        if isinstance(found, Exception):
            raise found
        return found


def _run(call: Future[Agreement], verifier: TextVerifier, cached: str, asked: str, score: float) -> None:
    try:
        call.set_result(verifier.verify_texts(cached, asked, score))
    except Exception as failure:
        call.set_exception(failure)
    except BaseException as failure:  # of the verifier's thread: it must not end the caller's
        call.set_exception(RuntimeError(repr(failure)))


def _failed(failure: BaseException) -> Agreement:
    return Agreement(False, 0.0, {"error": f"{type(failure).__name__}: {failure}"})
