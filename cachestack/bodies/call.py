"""One request as a dialect has read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cachestack.access.principal import Principal
from cachestack.asked_again import Reading
from cachestack.bodies.replays import Replay
from cachestack.bodies.wishes import Wishes
from cachestack.requests import Request


@dataclass(frozen=True, slots=True)
class Call:
    """What the stack is asked (`request`), of which engine, and how the answer is wanted.

    `model` is the name that the caller used and reads in the answer. `include_usage`: the stream ends with the usage.
    `echo`: what the answer repeats of the request, where the dialect does so. `reading` is the pipeline's,
    `replay` what was sent last.
    """

    request: Request
    model: str
    engine: str
    stream: bool = False
    include_usage: bool = False
    echo: Mapping[str, Any] = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading, compare=False)
    replay: Replay = field(default_factory=Replay, compare=False)


@dataclass(frozen=True, slots=True)
class Given:
    """What a dialect reads a request from, besides the body."""

    principal: Principal
    wishes: Wishes
    headers: Mapping[str, str]
