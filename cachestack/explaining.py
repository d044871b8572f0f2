"""What a request would do, found by running the pipeline up to the point where it would act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachestack.decisions import Response, Trace
from cachestack.effects import Generate, PublishEntry, Touch
from cachestack.engines.base import Engine
from cachestack.performer import Performer
from cachestack.pipeline import Run
from cachestack.tracing import TraceBuilder


@dataclass(frozen=True, slots=True)
class Explanation:
    """`would` is `exact`, `semantic`, or `engine`; `answer` is what a hit would serve. `print` draws the trace."""

    would: str
    trace: Trace
    answer: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None

    def __str__(self) -> str:
        head = {"engine": "would call the engine"}.get(self.would, f"would serve a cached answer ({self.would})")
        return f"{head}\n{self.trace}"


def explain_run(run: Run, trace: TraceBuilder, performer: Performer, engines: Mapping[str, Engine]) -> Explanation:
    """Run until an answer is found or the engine would be called; perform no write."""
    try:
        effect = next(run)
        while True:
            result: Any = None
            match effect:
                case Generate(prompt=prompt, past=past):
                    tokens = len(prompt.ids) if prompt is not None else None
                    cached = sum(kv.num_tokens for kv in past) if prompt is not None else None
                    return Explanation("engine", trace.trace(), None, tokens, cached)
                case Touch() | PublishEntry():
                    pass
                case _:
                    try:
                        result = performer.perform(effect, engines)
                    except Exception as error:
                        effect = run.throw(error)
                        continue
            effect = run.send(result)
    except StopIteration as stop:
        response: Response = stop.value
        return Explanation(response.trace.served_from, response.trace, response.text)
    finally:
        run.close()
