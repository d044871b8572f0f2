"""What a request's headers say to the endpoints that answer. Most requests of a client say the same, which is read
once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cachestack.bodies.wishes import CACHE_CONTROL, TAGS, TTL, Wishes
from cachestack.requests import PASSED_HEADERS

RawHeaders = list[tuple[bytes, bytes]]
Picked = tuple[tuple[bytes, bytes], ...]
_COUNTED = tuple(name for names in PASSED_HEADERS.values() for name in names)
_READ = frozenset(name.encode() for name in ("authorization", "x-api-key", CACHE_CONTROL, TAGS, TTL, *_COUNTED))
_MAX_REMEMBERED = 512
_MAX_REMEMBERED_BYTES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """`headers`: all that are read."""

    headers: Mapping[str, str]
    wishes: Wishes


class ToldHeaders:
    """Used from the event loop only. Credentials stand among what is remembered, and are checked each time."""

    def __init__(self) -> None:
        self._known: dict[Picked, Told] = {}

    def get(self, picked: Picked) -> Told | None:
        return self._known.get(picked)

    def keep(self, picked: Picked, headers: Mapping[str, str], wishes: Wishes) -> Told:
        told = Told(headers, wishes)
        if sum(len(value) for _, value in picked) <= _MAX_REMEMBERED_BYTES:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[picked] = told
        return told


def picked(raw: RawHeaders) -> Picked:
    """Those that are read, as they came."""
    return tuple([header for header in raw if header[0] in _READ])


def joined(raw: RawHeaders | Picked) -> dict[str, str]:
    """Names in lower case; of a header that is given twice, both, as HTTP joins them."""
    found: dict[str, str] = {}
    again: dict[str, list[str]] = {}  # joined once: of a flood, each joined to the last would take for ever
    for name, value in raw:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        if key in found:
            again.setdefault(key, [found[key]]).append(text)
        else:
            found[key] = text
    return found | {key: ", ".join(texts) for key, texts in again.items()} if again else found
