"""One generation: a split prefill, then token by token over the request's own cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cachestack.engines.base import Computed, KVRun, TokenStream
from cachestack.engines.transformers.adapter import forward, takes_cache
from cachestack.engines.transformers.kv import KVTensors, cut, fork, new_cache, run_of
from cachestack.engines.transformers.load import Loaded
from cachestack.engines.transformers.sampling import Sampler
from cachestack.engines.transformers.text import Detokenizer, StopStrings
from cachestack.errors import EngineError
from cachestack.requests import FinishReason, Generation, Usage

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Job:
    """One generation. `past` covers a proper beginning of `ids`. The prefill is split at each of `publish_at`, and
    a last position of `len(ids)` asks for the run of the remainder and the generated tokens."""

    ids: tuple[int, ...]
    sampler: Sampler
    max_new_tokens: int
    past: Sequence[KVRun] = ()
    publish_at: Sequence[int] = ()
    stops: tuple[str, ...] = ()
    eos: frozenset[int] = frozenset()

    @property
    def num_past(self) -> int:
        return sum(run.num_tokens for run in self.past)

    @property
    def keeps_generated(self) -> bool:
        return bool(self.publish_at) and self.publish_at[-1] == len(self.ids)

    def check(self) -> None:
        """Raises AssertionError for a job that breaks the engine's contract."""
        edges = (self.num_past, *self.publish_at)
        assert self.ids, "a prompt has at least one token"
        assert self.num_past < len(self.ids), "at least one token must be left to compute"
        assert all(a < b for a, b in pairwise(edges)), f"publish_at must ascend after past: {edges}"
        assert edges[-1] <= len(self.ids), "a run cannot end beyond the prompt"


class Passes:
    """The passes of one request. Without a cache in the model, each pass computes the whole sequence again."""

    def __init__(self, loaded: Loaded, past: Sequence[KVRun], *, forkable: bool) -> None:
        self._loaded = loaded
        self._seen: list[int] = []
        config = loaded.model.config
        self.cache: Any = None
        if takes_cache(loaded.model):
            self.cache = fork(past, config) if forkable else new_cache(config)

    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits `[vocabulary]` after `ids`. Raises EngineError for whatever goes wrong in the model."""
        import torch

        if self.cache is None:
            self._seen.extend(ids)
            ids = self._seen
        try:
            tokens = torch.tensor([list(ids)], dtype=torch.long, device=self._loaded.device)
            with self._loaded.lock:
                return forward(self._loaded.model, input_ids=tokens, cache=self.cache)[0, -1]
        except Exception as error:  # each model's code and torch have errors of their own, out of memory included
            raise EngineError(f"the model failed while it computed {len(ids)} tokens: {error}") from error


def generate(loaded: Loaded, job: Job, *, forkable: bool, clock: Callable[[], float]) -> TokenStream:
    """Yields text, returns what was computed. Closing it stops the work; nothing is handed out then.

    A cold run that is split at P and a warm run whose past ends at P make the same pass over the same tensors after
    P, so their logits are equal bit for bit.
    """
    job.check()
    began = clock()
    passes = Passes(loaded, job.past, forkable=forkable)
    kept: list[tuple[int, KVTensors]] = []
    done = job.num_past
    for stop in (*(p for p in job.publish_at if p < len(job.ids)), len(job.ids)):
        logits = passes.feed(job.ids[done:stop])
        if stop < len(job.ids):
            kept.append((done, cut(passes.cache, done, stop)))
            done = stop
    tokens = [job.sampler.next(logits)]  # on an accelerator, this waits for the passes
    first = clock()

    text, stops = Detokenizer(loaded.tokenizer), StopStrings(job.stops)
    sent: list[str] = []
    away_s = 0.0  # time the reader took between pieces, which is not ours
    finish: FinishReason | None = None
    while finish is None:
        ended = tokens[-1] in job.eos
        piece = stops.add(text.finish() if ended else text.add(tokens[-1]))
        if ended and not stops.found:
            piece += stops.finish()
        if piece:
            left = clock()
            sent.append(piece)
            yield piece
            away_s += clock() - left
        if ended or stops.found:
            finish = "stop"
        elif len(tokens) >= job.max_new_tokens:
            finish = "length"
        else:
            tokens.append(job.sampler.next(passes.feed(tokens[-1:])))
    if finish == "length":
        rest = stops.add(text.finish())
        if stops.found:
            finish = "stop"
        rest += stops.finish()
        if rest:
            sent.append(rest)
            yield rest

    generation = Generation(
        text="".join(sent),
        finish_reason=finish,
        usage=Usage(prompt_tokens=len(job.ids), cached_tokens=job.num_past, completion_tokens=len(tokens)),
        ttft_s=first - began,
        decode_s=clock() - first - away_s,
    )
    ids = (*job.ids, *tokens[:-1])  # the last token was never fed: there is no KV of it
    if job.keeps_generated:
        kept.append((done, cut(passes.cache, done, len(ids))))
    finite = all(payload.is_finite() for _, payload in kept)
    return Computed(
        generation=generation,
        runs=tuple(run_of(payload, start) for start, payload in kept) if finite else (),
        ids=ids,
        finite=finite,
        prefill_s=first - began,
        detail={"dtype": loaded.dtype},
    )
