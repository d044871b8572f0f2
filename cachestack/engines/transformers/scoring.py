"""One classification's scorer: its labels, its item prompts, and passes through the model under its lock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cachestack.engines.base import KVRun
from cachestack.engines.transformers.adapter import context_tokens, forward, takes_mask_4d
from cachestack.engines.transformers.engine import TransformersEngine, end_tokens
from cachestack.engines.transformers.kv import cut, fork, run_of
from cachestack.engines.transformers.labels import LabelSet, label_set, label_tries
from cachestack.engines.transformers.packing import PACK_TOKENS, Scored, score_pack, score_whole
from cachestack.engines.transformers.template import ChatTemplate
from cachestack.errors import ContextTooLong, EngineError, RequestError
from cachestack.requests import Message, Request

T = TypeVar("T")
# Beginnings of texts that share no first token: what prompts made of them share is the same for any text.
PROBES = ("a", "A", "1", " b", "\nb", "\u00e9", "\u2460", "?", '"', "-")


@dataclass(frozen=True, slots=True)
class LabelScores:
    """`scores`: log-probabilities in the labels' order. `row`: the vocabulary row, for `difference` alone."""

    scores: tuple[float, ...]
    row: Any

    @property
    def is_finite(self) -> bool:
        """Whether the model's output was a number. A label that it excludes altogether (-inf) is no failure."""
        return not any(math.isnan(s) or s == math.inf for s in self.scores) and max(self.scores) > -math.inf


class LabelScorer:
    """Scores one set of labels for items of one prompt and template. Opens the model.

    Raises LabelError for unusable labels, RequestError where the chat template refuses such messages, ContextTooLong
    where the prompt alone does not fit.
    """

    def __init__(self, engine: TransformersEngine, labels: Sequence[str], *, prompt: str, template: str) -> None:
        self._engine = engine
        self._loaded = engine.loaded
        self._prompt = prompt
        self._template = template
        ends = sorted(end_tokens(self._loaded.model, self._loaded.tokenizer))
        shortest = self._request("x")
        engine.prepare(shortest)  # a prompt that leaves no room is one error, not one for each item
        opening = ChatTemplate(self._loaded.tokenizer).render(shortest).text
        self.labels: LabelSet = label_set(self._loaded.tokenizer, opening, labels, end_ids=ends)
        self.unsupported_cache = engine.unsupported_cache
        self._packs = self.unsupported_cache is None and takes_mask_4d(self._loaded.model)
        self.pack_tokens = PACK_TOKENS if self._packs else 0
        self._tries = () if self.labels.by_first_token else label_tries(self.labels, self.pack_tokens)
        self._context = context_tokens(self._loaded.model, self._loaded.tokenizer)

    @property
    def fingerprint(self) -> str:
        return self._engine.fingerprint

    @property
    def model(self) -> str:
        return self._engine.model

    @property
    def dtype(self) -> str:
        return self._loaded.dtype

    def tokenise(self, text: str) -> tuple[int, ...]:
        """All tokens of an item's prompt. Raises RequestError or ContextTooLong for a text that cannot be scored."""
        if not isinstance(text, str):
            raise RequestError(f"an item is text, not {type(text).__name__}")
        if not text.strip():
            raise RequestError("the text is empty")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise RequestError("the text is not valid Unicode (a lone surrogate)") from None
        ids = self._engine.prepare(self._request(text)).ids
        longest = max(max(trie.depths, default=-1) + 1 for trie in self._tries) if self._tries else 0
        if self._context is not None and len(ids) + longest > self._context:
            raise ContextTooLong(
                f"the prompt and its longest label have {len(ids) + longest} tokens, "
                f"and the model's context holds {self._context}"
            )
        return ids

    def stable_tokens(self, first_items: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The tokens that every item's prompt begins with, as far as probes and the first items tell.

        Chosen among whole prompts in token space, so that a text that merges with what stands before it only makes
        the prefix a token shorter.
        """
        prompts = [list(ids) for ids in first_items]
        prompts += [list(self._engine.prepare(self._request(probe)).ids) for probe in PROBES]
        # One token at least is left to compute, even where two prompts are equal.
        longest = min(len(ids) for ids in prompts) - 1
        return tuple(prompts[0][: next((i for i in range(longest) if len({p[i] for p in prompts}) > 1), longest)])

    def compute(self, past: Sequence[KVRun], ids: Sequence[int]) -> KVRun | None:
        """The KV of `ids`, which follow `past`; None where a value is not finite."""
        import torch

        start = sum(run.num_tokens for run in past)

        def work() -> KVRun | None:
            cache = fork(past, self._loaded.model.config)
            tokens = torch.tensor([list(ids)], dtype=torch.long, device=self._loaded.device)
            forward(self._loaded.model, input_ids=tokens, cache=cache)
            payload = cut(cache, start, start + len(ids))
            return run_of(payload, start) if payload.is_finite() else None

        return self._guarded(work)

    def gather(self, runs: Sequence[KVRun]) -> tuple[KVRun, ...]:
        """The same KV in one piece, so that each pack gathers it in one copy a layer, not one a block."""
        if len(runs) <= 1:
            return tuple(runs)
        num_tokens = sum(run.num_tokens for run in runs)
        return (run_of(cut(fork(runs, self._loaded.model.config), 0, num_tokens), 0),)

    def score(self, past: Sequence[KVRun], suffixes: Sequence[Sequence[int]]) -> tuple[LabelScores, ...]:
        """Scores after `past` and each suffix, in one pack."""
        return self._guarded(
            lambda: _plain(
                score_pack(self._loaded.model, past, suffixes, self.labels, self._tries, max_tokens=self.pack_tokens)
            )
        )

    def whole(self, ids: Sequence[int]) -> LabelScores:
        """Scores after the whole prompt, without anything kept."""
        if self.unsupported_cache is None:
            return self.score((), [ids])[0]
        return self._guarded(lambda: _plain([score_whole(self._loaded.model, ids, self.labels)]))[0]

    def difference(self, first: LabelScores, second: LabelScores) -> float:
        """The largest absolute difference between the two vocabulary rows."""
        return float((first.row - second.row).abs().max())

    def _request(self, text: str) -> Request:
        messages = (Message("system", self._prompt),) if self._prompt else ()
        content = self._template.replace("{text}", text)
        # Nothing marked as stable: boundaries are found here, by comparing prompts.
        return Request((*messages, Message("user", content)), stable_messages=0)

    def _guarded(self, work: Callable[[], T]) -> T:
        """Raises EngineError for whatever goes wrong in the model, out of memory included."""
        import torch

        try:
            with self._loaded.lock, torch.no_grad():
                return work()
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise EngineError(f"the model failed while it scored labels: {error}") from error


def _plain(scored: Sequence[Scored]) -> tuple[LabelScores, ...]:
    return tuple(LabelScores(tuple(s.scores.tolist()), s.row) for s in scored)
