"""Which models can be named in a request, and which engine answers for each."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from cachestack.errors import RequestError


class UnknownModel(RequestError):
    """A request names a model that no engine here answers to."""


@dataclass(frozen=True, slots=True)
class Offered:
    """One engine. `model` is its own, sent whatever name was asked for; empty where it takes each request's.

    `names` are others that it answers to, with `*` as a wild card.

    `in_process`: it is the engine in this process, which can do less than a provider.
    """

    engine: str
    model: str
    names: tuple[str, ...] = ()
    in_process: bool = False

    def asked_as(self, name: str) -> bool:
        return bool(self.model) and name in (self.engine, self.model)

    def answers_to(self, name: str) -> bool:
        return self.asked_as(name) or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)


@dataclass(frozen=True, slots=True)
class Models:
    """All that is offered; the first engine first. `encoder`: the encoder's name, None where there is none."""

    engines: tuple[Offered, ...]
    encoder: str | None = None

    def find(self, name: str) -> Offered:
        """The engine for a model's name: one that is called so before one whose pattern fits. Raises UnknownModel."""
        exact = next((one for one in self.engines if one.asked_as(name)), None)
        found = exact or next((one for one in self.engines if one.answers_to(name)), None)
        if found is None:
            raise UnknownModel(f"the model {name!r} is not here; there are: {', '.join(self.listed)}")
        return found

    @property
    def example(self) -> str:
        """A model to chat with, for lines that show how; a word to be replaced where each request names its own."""
        return self.listed[0] if len(self.listed) > (self.encoder is not None) else "MODEL"

    @property
    def listed(self) -> Sequence[str]:
        """What `/v1/models` lists: chat models, then the encoder."""
        chat = [name for one in self.engines for name in (one.model, *one.names) if name and "*" not in name]
        return [*dict.fromkeys(chat), *([self.encoder] if self.encoder else [])]
