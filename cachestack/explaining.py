"""What a request would do, found by running the pipeline up to the point where it would act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachestack.decisions import Response, Trace
from cachestack.effects import (
    FindExact,
    Generate,
    NoteMissed,
    NoteServed,
    Prolong,
    PublishEntry,
    Revalidate,
    Search,
    Touch,
)
from cachestack.engines.base import Engine
from cachestack.entries import Entry
from cachestack.performer import Performer
from cachestack.pipeline import Run
from cachestack.tracing import TraceBuilder


@dataclass(frozen=True, slots=True)
class Explanation:
    """`would` is `exact`, `semantic`, `stale` (a new answer is made meanwhile), or `engine`; `answer` is what a
    hit would serve, and `provenance` where that came from: whose request, which model and engine, when. `print` draws
    the trace."""

    would: str
    trace: Trace
    answer: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    provenance: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        head = {"engine": "would call the engine"}.get(self.would, f"would serve a cached answer ({self.would})")
        lines = [head, str(self.trace)]
        if self.provenance is not None:
            said = " · ".join(f"{key}={value}" for key, value in self.provenance.items() if value not in (None, "", []))
            lines.append(f"answer from: {said}")
        return "\n".join(lines)


def explain_run(run: Run, trace: TraceBuilder, performer: Performer, engines: Mapping[str, Engine]) -> Explanation:
    """Run until an answer is found or the engine would be called; perform no write."""
    entries: dict[str, Entry] = {}
    try:
        effect = next(run)
        while True:
            result: Any = None
            match effect:
                case Generate(prompt=prompt, past=past):
                    tokens = len(prompt.ids) if prompt is not None else None
                    cached = sum(kv.num_tokens for kv in past) if prompt is not None else None
                    return Explanation("engine", trace.trace(), None, tokens, cached)
                case Touch() | PublishEntry() | NoteServed() | NoteMissed() | Prolong() | Revalidate():
                    pass
                case _:
                    try:
                        result = performer.perform(effect, engines)
                    except Exception as error:
                        effect = run.throw(error)
                        continue
            if isinstance(effect, FindExact) and isinstance(result, Entry):
                entries[result.entry_id] = result
            elif isinstance(effect, Search) and isinstance(result, list):
                entries |= {candidate.entry.entry_id: candidate.entry for candidate in result}
            effect = run.send(result)
    except StopIteration as stop:
        response: Response = stop.value
        entry = entries.get(response.hit_id or "")
        origin = None if entry is None else provenance_of(entry)
        return Explanation(response.trace.served_from, response.trace, response.text, provenance=origin)
    finally:
        run.close()


def provenance_of(entry: Entry) -> dict[str, Any]:
    """Where an entry's answer came from, as JSON-able values."""
    return {
        "entry_id": entry.entry_id,
        "tenant": entry.partition.tenant,
        "principal": entry.principal,
        "model": entry.model,
        "engine": entry.engine,
        "request_id": entry.request_id,
        "created_at_s": entry.created_at_s,
        "confirmed_by": list(entry.confirmed_by),
    }
