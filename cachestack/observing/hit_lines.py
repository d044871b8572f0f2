"""The request log's line of an exact hit: all but five numbers and the request's id is the same for each hit of an
entry, and is written once."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cachestack.decisions import Reason, Step
from cachestack.observers import Ended

_MAX_REMEMBERED = 2048
_MAX_LINE_BYTES = 4096
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Form:
    """Lines of hits whose trace has these very steps around the look-up: `Served` makes them for one entry."""

    first: Step
    last: Step
    text: str


class HitLines:
    """`line_of`: a line as it is otherwise made; `encoded`: its bytes. Where that is slow, one line in many is made so.

    It is for requests of the same entry, tenant and model: those whose steps are the same objects each time.
    """

    def __init__(self, line_of: Callable[[Ended], Line], encoded: Callable[[Line], bytes]) -> None:
        self._line_of = line_of
        self._encoded = encoded
        self._forms: dict[int, _Form] = {}  # by the last step's identity, which the form keeps alive

    def line(self, ended: Ended) -> bytes | None:
        """None for all that is not such a hit."""
        trace = ended.trace
        if ended.response is None or len(trace.steps) != 3:
            return None
        first, found, last = trace.steps
        if found.reason is not Reason.EXACT or last.reason is not Reason.REPLAYED or last.seconds or first.seconds:
            return None
        form = self._forms.get(id(last))
        if form is None or form.first is not first:
            form = self._made(ended, first, last)
            if form is None:
                return None
        at_s, seconds, age_s, request_id = ended.at_s, trace.seconds, found.detail.get("age_s"), trace.request_id
        if type(age_s) is not float or not (abs(at_s + seconds + age_s) < math.inf and request_id.isalnum()):
            return None
        numbers = round(at_s, 3), request_id, round(seconds, 6), round(found.seconds, 6), age_s
        return (form.text % numbers).encode()

    def _made(self, ended: Ended, first: Step, last: Step) -> _Form | None:
        marks = [f"{secrets.token_hex(16)}" for _ in range(5)]
        line = self._line_of(ended)
        step = line["steps"][1]
        if set(step["detail"]) != {"entry_id", "age_s"}:
            return None
        line |= {"at_s": marks[0], "request_id": marks[1], "seconds": marks[2]}
        step |= {"seconds": marks[3], "detail": step["detail"] | {"age_s": marks[4]}}
        raw = self._encoded(line)
        if len(raw) > _MAX_LINE_BYTES:
            return None
        text = raw.decode().replace("%", "%%")
        for number, mark in enumerate(marks):
            text = text.replace(f'"{mark}"', '"%s"' if number == 1 else "%r")
        if len(self._forms) >= _MAX_REMEMBERED:
            self._forms.clear()
        form = self._forms[id(last)] = _Form(first, last, text)
        return form
