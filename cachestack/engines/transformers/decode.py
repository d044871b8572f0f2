"""One generation: a split prefill, then token by token over the request's own cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cachestack.engines.base import Computed, KVRun, TokenStream
from cachestack.engines.transformers.adapter import forward, takes_cache
from cachestack.engines.transformers.kv import cut, fork, new_cache, run_of
from cachestack.engines.transformers.load import Loaded
from cachestack.engines.transformers.sampling import Sampler
from cachestack.engines.transformers.text import Detokenizer, StopStrings
from cachestack.errors import EngineError
from cachestack.requests import FinishReason, Generation, Usage

if TYPE_CHECKING:
    import torch

GATHERED_TOKENS = 2048
"""A longer past is not gathered for decoding but left where it is, also for the memory of many streams."""


@dataclass(frozen=True, slots=True)
class Job:
    """One generation. `past` covers a proper beginning of `ids`. The prefill is split at each of `publish_at`, and
    a last position of `len(ids)` asks for the run of the remainder and the generated tokens. Runs are kept in
    `kv_dtype` (None: the model's), and what follows is computed from them as they are kept."""

    ids: tuple[int, ...]
    sampler: Sampler
    max_new_tokens: int
    past: Sequence[KVRun] = ()
    publish_at: Sequence[int] = ()
    kv_dtype: str | None = None
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

    def __init__(
        self,
        loaded: Loaded,
        past: Sequence[KVRun],
        *,
        forkable: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loaded = loaded
        self._clock = clock
        self.waited_s = 0.0  # for other requests' passes, which is not what a pass costs
        self._seen: list[int] = []
        self._runs = list(past)
        self._forkable = forkable
        self._copied_bytes = 0
        self.cache: Any = None
        if takes_cache(loaded.model):
            self.cache = self._fork() if forkable else new_cache(loaded.model.config)

    @property
    def copied_bytes(self) -> int:
        """Bytes of KV that were there before and were copied: gathered, converted, or moved to grow."""
        return self._copied_bytes + (self.cache.copied_bytes if self._forkable else 0)

    def feed(self, ids: Sequence[int], *, wants_logits: bool = True) -> torch.Tensor:
        """Logits `[vocabulary]` after `ids` (none where they are not wanted). Raises EngineError for whatever goes
        wrong in the model."""
        import torch

        if self.cache is None:
            self._seen.extend(ids)
            ids = self._seen
        try:
            tokens = torch.tensor([list(ids)], dtype=torch.long, device=self._loaded.device)
            keep = 1 if wants_logits else torch.zeros(0, dtype=torch.long, device=self._loaded.device)
            asked = self._clock()
            with self._loaded.lock:
                self.waited_s += self._clock() - asked
                logits = forward(self._loaded.model, input_ids=tokens, cache=self.cache, keep_logits=keep)
            return logits[0, -1] if wants_logits else logits[0]
        except Exception as error:  # each model's code and torch have errors of their own, out of memory included
            raise EngineError(f"the model failed while it computed {len(ids)} tokens: {error}") from error

    def keep(self, start: int, stop: int, kv_dtype: str | None) -> KVRun:
        """The run of the last tokens. What follows is computed after it as after any kept run: from a new fork."""
        run = run_of(cut(self.cache, start, stop).as_dtype(kv_dtype), start)
        self._copied_bytes += self.cache.copied_bytes
        self._runs.append(run)
        self.cache = self._fork()
        return run

    def begin_decoding(self) -> None:
        """A past of moderate length is gathered: that costs what sharing it costs in some ten tokens."""
        if self._forkable and self.cache.num_shared <= GATHERED_TOKENS:
            self.cache.gather()

    def _fork(self) -> Any:
        num_past = sum(run.num_tokens for run in self._runs)
        return fork(self._runs, self._loaded.model.config, shares=_shares(self._loaded, num_past))


def generate(loaded: Loaded, job: Job, *, forkable: bool, clock: Callable[[], float]) -> TokenStream:
    """Yields text, returns what was computed. Closing it stops the work; nothing is handed out then.

    A cold run that is split at P and a warm run whose past ends at P make the same pass over the same tensors after
    P, so their logits are equal bit for bit.
    """
    job.check()
    began = clock()
    passes = Passes(loaded, job.past, forkable=forkable, clock=clock)
    kept: list[KVRun] = []
    done = job.num_past
    for stop in (p for p in job.publish_at if p < len(job.ids)):
        passes.feed(job.ids[done:stop], wants_logits=False)
        kept.append(passes.keep(done, stop, job.kv_dtype))
        done = stop
    logits = passes.feed(job.ids[done:])
    tokens = [job.sampler.next(logits)]  # on an accelerator, this waits for the passes
    first = clock()
    prefill_s = first - began - passes.waited_s
    passes.begin_decoding()

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
        kept.append(run_of(cut(passes.cache, done, len(ids)).as_dtype(job.kv_dtype), done))
    finite = all(run.payload.is_finite() for run in kept)
    return Computed(
        generation=generation,
        runs=tuple(kept) if finite else (),
        ids=ids,
        finite=finite,
        prefill_s=prefill_s,
        detail={"dtype": job.kv_dtype or loaded.dtype, "copied_bytes": passes.copied_bytes},
    )


def _shares(loaded: Loaded, num_past: int) -> bool:
    from cachestack.engines.transformers.attention import shares_past

    with loaded.lock:
        return shares_past(loaded.model, num_past)
