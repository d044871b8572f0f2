"""What one request wants of the cache: `Cache-Control` (RFC 9111, section 5.2.1), tags, a shorter life.

Directives that are not known are ignored, as the RFC says. A known one that cannot be read is refused: whoever asks
for an answer that is fresh must not get an old one because of a slip of the pen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from cachestack.errors import RequestError

CACHE_CONTROL = "cache-control"
TAGS = "x-cachestack-tags"
TTL = "x-cachestack-ttl"
_DIRECTIVE = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*)))?\s*(?:,|$)')
_MAX_TAGS = 32
_MAX_TAG_CHARS = 128


@dataclass(frozen=True, slots=True)
class Wishes:
    """As in `Request`, under the same names."""

    store: bool = True
    lookup: bool = True
    only_if_cached: bool = False
    max_age_s: float | None = None
    tags: tuple[str, ...] = ()
    ttl_s: float | None = None


NONE = Wishes()


def wishes_of(headers: Mapping[str, str]) -> Wishes:
    """Raises RequestError that names the header and the directive."""
    control, tags, ttl = headers.get(CACHE_CONTROL), headers.get(TAGS), headers.get(TTL)
    if control is None and tags is None and ttl is None:
        return NONE
    directives = _directives(control or "")
    return Wishes(
        store="no-store" not in directives,
        lookup="no-cache" not in directives,
        only_if_cached="only-if-cached" in directives,
        max_age_s=_max_age(directives["max-age"]) if "max-age" in directives else None,
        tags=_tags(tags or ""),
        ttl_s=None if ttl is None else _ttl(ttl),
    )


def _directives(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:  # not a directive: on to the next comma
            position = text.find(",", position) + 1 or len(text)
            continue
        name = match[1].lower()
        found.setdefault(name, match[2] if match[2] is not None else match[3] or "")
        position = match.end()
    return found


def _max_age(text: str) -> float:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise RequestError(f"Cache-Control: max-age={text} is not a whole number of seconds, such as max-age=600")
    return float(text)


def _tags(text: str) -> tuple[str, ...]:
    with suppress(UnicodeError):  # headers come as Latin-1; what was sent as UTF-8 is the tag to be invalidated by
        text = text.encode("latin-1").decode("utf-8")
    tags = tuple(dict.fromkeys(tag for part in text.split(",") if (tag := part.strip())))
    if len(tags) > _MAX_TAGS or any(len(tag) > _MAX_TAG_CHARS for tag in tags):
        raise RequestError(f"X-CacheStack-Tags: at most {_MAX_TAGS} names of at most {_MAX_TAG_CHARS} characters each")
    return tags


def _ttl(text: str) -> float:
    try:
        ttl_s = float(text)
    except ValueError:
        ttl_s = math.nan
    if not (math.isfinite(ttl_s) and ttl_s > 0):
        raise RequestError(f"X-CacheStack-TTL: {text} is not a number of seconds above 0")
    return ttl_s
