"""The demonstration's trace: what is asked, in order, and what would be wrong."""

from __future__ import annotations

from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Ask(_Model):
    """One request. `answer` names what a right answer is about: a hit from an entry with another one is wrong."""

    tenant: str
    system: str
    ask: str
    answer: str
    shows: str
    expect: Literal["exact", "engine"] | None = None
    prefix: Literal["reused", "cold"] | None = None
    conversation: str | None = None
    temperature: float | None = None
    seed: int | None = None
    advance_s: float = 0.0


class Batch(_Model):
    """A classification batch."""

    tenant: str
    answer: str
    shows: str
    labels: Annotated[tuple[str, ...], Field(min_length=2)]
    prompt: str
    template: str
    items: Annotated[tuple[str, ...], Field(min_length=1)]


class DemoTrace(_Model):
    """All steps, and the system prompts they name."""

    stop: tuple[str, ...]
    systems: dict[str, str]
    steps: tuple[Ask | Batch, ...]

    @model_validator(mode="after")
    def _systems_are_known(self) -> DemoTrace:
        unknown = {step.system for step in self.steps if isinstance(step, Ask)} - set(self.systems)
        if unknown:
            raise ValueError(f"steps name systems that are not there: {sorted(unknown)}")
        return self


def load_trace() -> DemoTrace:
    """The trace that ships with the package."""
    text = resources.files("cachestack").joinpath("demo/trace.yaml").read_text(encoding="utf-8")
    return DemoTrace.model_validate(yaml.safe_load(text))
