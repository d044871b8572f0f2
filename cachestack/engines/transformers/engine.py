"""The in-process engine: a Transformers model that takes KV runs and gives new ones back."""

from __future__ import annotations

import datetime
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from cachestack.engines.base import Computed, KVRun, Prompt, TokenStream
from cachestack.engines.transformers.adapter import context_tokens
from cachestack.engines.transformers.boundary import BoundaryFinder
from cachestack.engines.transformers.decode import Job, generate
from cachestack.engines.transformers.fingerprint import FileDigests, Fingerprint
from cachestack.engines.transformers.kv import unsupported_reason
from cachestack.engines.transformers.load import Loaded, Once, as_loaded, load
from cachestack.engines.transformers.prefill import prefill
from cachestack.engines.transformers.sampling import Sampler
from cachestack.engines.transformers.template import FIXED_DATE, PLAIN_STOPS, ChatTemplate
from cachestack.engines.transformers.tokenised import tokenise
from cachestack.errors import ContextTooLong, EngineError, RequestError
from cachestack.folders import home_folder
from cachestack.requests import Generation, Request, Sampling, Usage

DEFAULT_MAX_NEW_TOKENS = 256
DIGESTS_FILE = "file-digests.json"


class TransformersEngine:
    """A TokenEngine. Making one costs nothing: the model is opened by the first call that needs it, once.

    May be used from several threads. Each stream has its own cache; passes through the model take turns (see
    `Loaded.lock`), so streams interleave token by token, and a reader that pauses holds nothing up.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str = "local",
        device: str | None = None,
        dtype: str | None = None,
        max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS,
        template_date: datetime.date = FIXED_DATE,
        digests_path: Callable[[], Path | None] = lambda: home_folder() / DIGESTS_FILE,
        clock: Callable[[], float] = time.perf_counter,
        new_seed: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        """`model`: a name, hub id or path, see `load`. `max_new_tokens`: for requests that set none.

        `template_date` is what a chat template is told when it asks for the date. `digests_path` says where digests
        of weight files are remembered (None: only in memory). `new_seed` gives seeds to requests that have none.
        """
        self._name = name
        self._model = model
        self._max_new_tokens = max_new_tokens
        self._template_date = template_date
        self._digests = FileDigests(digests_path)
        self._clock = clock
        self._new_seed = new_seed
        self._parts = Once(lambda: self._described(load(model, device, dtype), from_files=True))

    @classmethod
    def from_parts(cls, model: Any, tokenizer: Any, *, name: str = "in-memory", **options: Any) -> TransformersEngine:
        """An engine of an open model and tokenizer; `name` is also what the contract calls the model."""
        engine = cls(name, name=name, **options)
        engine._parts = Once(lambda: engine._described(as_loaded(model, tokenizer), from_files=False))
        return engine

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> str:
        return self._model

    @property
    def loaded(self) -> Loaded:
        """The open model; opens it. Raises what `load` raises."""
        return self._parts.get().loaded

    @property
    def fingerprint(self) -> str:
        return self._parts.get().fingerprint.value

    @property
    def unsupported_cache(self) -> str | None:
        return self._parts.get().unsupported

    def prepare(self, request: Request) -> Prompt:
        """Tokenise once, and find the clean boundaries.

        Raises ContextTooLong, and RequestError for messages that the chat template refuses or for several answers.
        """
        if request.sampling.n != 1:
            raise RequestError(
                f"the in-process engine gives one answer a request; n={request.sampling.n} is not possible"
            )
        parts = self._parts.get()
        rendered = parts.template.render(request)
        tokens = tokenise(parts.loaded.tokenizer, rendered.text, add_special_tokens=rendered.add_special_tokens)
        if not tokens.ids:
            raise RequestError("the prompt has no tokens; give the text of a message")
        self._check_fits(len(tokens.ids), parts)
        found = parts.boundaries.find(request, rendered, tokens)
        return Prompt(tokens.ids, found.clean, found.refusal, found.nearest_clean)

    def stream_tokens(
        self,
        request: Request,
        prompt: Prompt,
        past: Sequence[KVRun] = (),
        publish_at: Sequence[int] = (),
        *,
        kv_dtype: str | None = None,
    ) -> TokenStream:
        """See TokenEngine. Raises EngineError for a failure in the model and for logits that are not finite."""
        parts = self._parts.get()
        if parts.unsupported is not None and (past or publish_at):
            raise EngineError(f"KV of {self._model} cannot be kept: {parts.unsupported}")
        self._check_fits(len(prompt.ids), parts)
        sampling = request.sampling
        job = Job(
            ids=prompt.ids,
            sampler=Sampler(sampling, self._new_seed() if sampling.seed is None else sampling.seed),
            max_new_tokens=self._num_new_tokens(sampling, len(prompt.ids), parts),
            past=past,
            publish_at=publish_at,
            kv_dtype=kv_dtype,
            stops=(*sampling.stop, *(() if parts.template.source else PLAIN_STOPS)),
            eos=parts.eos,
        )
        stream = generate(parts.loaded, job, forkable=parts.unsupported is None, clock=self._clock)
        if not publish_at:
            return (yield from stream)
        fingerprint = parts.fingerprint.value
        computed = yield from stream
        return replace(computed, fingerprint=fingerprint if parts.fingerprint.value == fingerprint else "")

    def compute(
        self, prompt: Prompt, past: Sequence[KVRun], publish_at: Sequence[int], *, kv_dtype: str | None = None
    ) -> Computed:
        """See TokenEngine. Raises EngineError for a failure in the model."""
        parts = self._parts.get()
        if parts.unsupported is not None:
            raise EngineError(f"KV of {self._model} cannot be kept: {parts.unsupported}")
        past_tokens = sum(run.num_tokens for run in past)
        edges = (past_tokens, *publish_at)
        assert all(a < b for a, b in pairwise(edges)), f"publish_at must ascend after past: {edges}"
        assert edges[-1] <= len(prompt.ids), "a run cannot end beyond the prompt"
        fingerprint = parts.fingerprint.value
        with parts.loaded.lock:  # waiting for others is not what a prefill costs
            began = self._clock()
            runs = prefill(parts.loaded, past, [prompt.ids[a:b] for a, b in pairwise(edges)], kv_dtype=kv_dtype)
            seconds = self._clock() - began  # all values were looked at: an accelerator has come to its end
        return Computed(
            generation=Generation("", usage=Usage(prompt_tokens=edges[-1], cached_tokens=past_tokens)),
            runs=runs or (),
            ids=prompt.ids[: edges[-1]],
            finite=runs is not None,
            fingerprint=fingerprint if parts.fingerprint.value == fingerprint else "",
            prefill_s=seconds,
            detail={"dtype": kv_dtype or parts.loaded.dtype},
        )

    def _described(self, loaded: Loaded, *, from_files: bool) -> _Parts:
        template = ChatTemplate(loaded.tokenizer, self._template_date)
        return _Parts(
            loaded=loaded,
            template=template,
            boundaries=BoundaryFinder(loaded.tokenizer, template),
            fingerprint=Fingerprint(loaded, self._digests, from_files=from_files),
            unsupported=unsupported_reason(loaded.model),
            context_tokens=context_tokens(loaded.model, loaded.tokenizer),
            eos=end_tokens(loaded.model, loaded.tokenizer),
        )

    def _num_new_tokens(self, sampling: Sampling, num_prompt: int, parts: _Parts) -> int:
        asked = sampling.max_new_tokens or self._max_new_tokens
        return asked if parts.context_tokens is None else min(asked, parts.context_tokens - num_prompt)

    def _check_fits(self, num_prompt: int, parts: _Parts) -> None:
        if parts.context_tokens is not None and num_prompt >= parts.context_tokens:
            raise ContextTooLong(
                f"the prompt has {num_prompt} tokens, and the context of {self._model} holds {parts.context_tokens} "
                "including at least one of the answer; shorten the prompt or use a model with a longer context"
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """An open model and what was found out about it once."""

    loaded: Loaded
    template: ChatTemplate
    boundaries: BoundaryFinder
    fingerprint: Fingerprint
    unsupported: str | None
    context_tokens: int | None
    eos: frozenset[int]


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer: the generation configuration's and the tokenizer's."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = configured if isinstance(configured, (list, tuple)) else [configured]
    return frozenset(int(t) for t in (*listed, getattr(tokenizer, "eos_token_id", None)) if t is not None)
