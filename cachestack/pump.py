"""One call of an engine that several threads read, in turns: who needs the next piece gets it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from cachestack.errors import EngineError
from cachestack.requests import Piece

if TYPE_CHECKING:
    from cachestack.leases import Lease


class Pump:
    """One call of an engine, read by whoever needs its next piece; they take turns."""

    def __init__(self, stream: Generator[Piece, None, Any], lease: Lease) -> None:
        self.is_paused = False
        self._stream, self._lease = stream, lease
        self._turn = threading.Lock()
        self._pieces: list[Piece] = []
        self._result: Any = None
        self._error: Exception | None = None
        self._is_done = self._is_closed = False

    def read(self) -> Generator[Piece, None, Any]:
        """As the stream itself, for the leader."""
        index = 0
        try:
            while True:
                while index < len(self._pieces):
                    yield self._pieces[index]
                    index += 1
                if self._is_done and index == len(self._pieces):
                    break
                self.is_paused = False
                with self._turn:
                    self._advance(index)
            if self._error is not None:
                raise self._error
            return self._result
        finally:
            self._close()

    def help(self) -> bool:
        """Read one piece on in the leader's place; False where it reads itself."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self.is_paused and not self._is_done and not self._is_closed:
                self._advance(len(self._pieces))
                return True
            return False
        except BaseException:  # this thread was interrupted; the call is lost for all
            self._error, self._is_done = EngineError("the shared call of the engine was interrupted"), True
            self._lease.fail(self._error)
            raise
        finally:
            self._turn.release()
            if self._is_closed:
                self._close()

    def _advance(self, index: int) -> None:
        """Get piece `index`, if nobody has meanwhile."""
        if self._is_done or index < len(self._pieces):
            return
        try:
            with self._lease.working():
                piece = next(self._stream)
        except StopIteration as stop:
            self._result, self._is_done = stop.value, True
            self._lease.land(stop.value)
        except Exception as error:
            self._error, self._is_done = error, True
            if self._pieces:  # they have been seen: the leader cannot try again
                self._lease.fail(error)
        else:
            self._pieces.append(piece)
            self.is_paused = True  # until the leader comes for more
            self._lease.push(piece)

    def _close(self) -> None:
        self._is_closed = True
        self.is_paused = False
        if self._turn.acquire(blocking=False):  # else who reads closes when its piece has come
            try:
                self._stream.close()
            finally:
                self._turn.release()
