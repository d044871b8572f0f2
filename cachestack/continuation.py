"""What a follower has passed on, when the call that it came from ends and another one begins; exceptions, once more."""

from __future__ import annotations

import copy
from types import FunctionType

from cachestack.errors import EngineError
from cachestack.requests import Delta, Piece


class Interrupted(EngineError):
    """The shared call of the engine ended early, and the new one does not go on as what was already passed on."""


class Continuation:
    """Passes the pieces of one call on, then, after a `restart`, only what goes beyond them."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._has_delta = False
        self._due = ""  # of what was passed on: what the new call must still give

    @property
    def has_passed_on(self) -> bool:
        return self._has_delta or bool(self._texts)

    def restart(self) -> None:
        """Another call begins. Raises Interrupted where more than text was passed on: it cannot be compared."""
        if self._has_delta:
            raise _interrupted()
        self._due = "".join(self._texts)

    def passes(self, piece: Piece) -> Piece:
        """What of a piece is new; empty where nothing is."""
        if isinstance(piece, Delta):
            if self._due:
                raise _interrupted()
            self._has_delta = True
            return piece
        if self._due:
            known = min(len(piece), len(self._due))
            if piece[:known] != self._due[:known]:
                raise _interrupted()
            piece, self._due = piece[known:], self._due[known:]
        if piece:
            self._texts.append(piece)
        return piece

    def check(self, text: str) -> None:
        """Raises Interrupted where the whole answer does not begin with what was passed on."""
        if not text.startswith("".join(self._texts)):
            raise _interrupted()


def _interrupted() -> Interrupted:
    return Interrupted(
        "the call that this answer was streamed from ended early, and a new one gives another text: ask again"
    )


def twin_of(error: Exception) -> Exception:
    """An equal exception, so that two callers do not raise (and change) the same one."""
    kind = type(error)
    try:
        if isinstance(kind.__init__, FunctionType):  # its arguments are unknown; its state is not
            twin = kind.__new__(kind, *error.args)
            twin.args = error.args
            twin.__dict__.update(error.__dict__)
        else:
            twin = copy.copy(error)
    except Exception:
        twin = EngineError(f"{kind.__name__}: {error}")
    twin.__cause__ = error.__cause__
    notes = [*getattr(error, "__notes__", ())]
    if notes:
        twin.__notes__ = notes
    return twin
