"""One classification's scorer: its labels, its item prompts, and passes through the model under its lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from cachestack.engines.base import KVRun
from cachestack.engines.transformers.adapter import context_tokens, takes_packs
from cachestack.engines.transformers.engine import TransformersEngine, end_tokens
from cachestack.engines.transformers.kv import cut, fork, run_of
from cachestack.engines.transformers.labels import LabelSet, first_token_scores, label_set, label_tries
from cachestack.engines.transformers.packing import PACK_TOKENS, Scored, score_pack, score_whole
from cachestack.engines.transformers.prefill import prefill
from cachestack.engines.transformers.template import ChatTemplate
from cachestack.errors import ContextTooLong, EngineError, RequestError
from cachestack.requests import Message, Request

T = TypeVar("T")
# Beginnings of texts that share no first token: what prompts made of them share is the same for any text.
PROBES = ("a", "A", "1", " b", "\nb", "\u00e9", "\u2460", "?", '"', "-")
# Texts that say nothing, after which a label's probability is what it has anyway.
CONTENT_FREE = ("N/A", "[MASK]", "...")


@dataclass(frozen=True, slots=True)
class LabelScores:
    """`scores`: log-probabilities in the labels' order. `row`: the vocabulary row, opaque outside of the scorer."""

    scores: tuple[float, ...]
    row: Any


@dataclass(frozen=True, slots=True)
class KeepableRow:
    """A vocabulary row in memory of its own, with finite values only."""

    payload: Any
    num_bytes: int


class LabelScorer:
    """Scores one set of labels for items of one prompt and template. Opens the model.

    With `whole`, all tokens of a label are scored also where first tokens tell the labels apart. Raises LabelError for
    unusable labels, RequestError where the chat template refuses such messages, ContextTooLong where the prompt alone
    does not fit.
    """

    def __init__(
        self, engine: TransformersEngine, labels: Sequence[str], *, prompt: str, template: str, whole: bool = False
    ) -> None:
        self._engine = engine
        self._loaded = engine.loaded
        self._prompt = prompt
        self._template = template
        ends = sorted(end_tokens(self._loaded.model, self._loaded.tokenizer))
        shortest = self._request("x")
        engine.prepare(shortest)  # a prompt that leaves no room is one error, not one for each item
        shown = ChatTemplate(self._loaded.tokenizer).render(shortest)
        space = " " if shown.mode == "plain" else ""  # what a model writes after "Assistant:"
        self.labels: LabelSet = label_set(
            self._loaded.tokenizer, shown.text, labels, space=space, end_ids=ends, whole=whole
        )
        self.unsupported_cache = engine.unsupported_cache
        self._packs = self.unsupported_cache is None and takes_packs(self._loaded.model)
        self.pack_tokens = PACK_TOKENS if self._packs else 0
        self._tries = () if self.labels.by_first_token else label_tries(self.labels, self.pack_tokens)
        self._context = context_tokens(self._loaded.model, self._loaded.tokenizer)

    @property
    def fingerprint(self) -> str:
        return self._engine.fingerprint

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """Held, no other pass of this model begins. The holder's own passes do."""
        return self._loaded.lock

    @property
    def row_suffices(self) -> bool:
        """Whether the row after a prompt is all that its scores need, so that a kept one saves every pass."""
        return not any(trie.tokens for trie in self._tries)

    @property
    def model(self) -> str:
        return self._engine.model

    @property
    def dtype(self) -> str:
        return self._loaded.dtype

    def tokenise(self, text: str) -> tuple[int, ...]:
        """All tokens of an item's prompt. Raises RequestError or ContextTooLong for a text that cannot be scored."""
        check_text(text)
        ids = self._engine.prepare(self._request(text)).ids
        longest = max(max(trie.depths, default=-1) + 1 for trie in self._tries) if self._tries else 0
        if self._context is not None and len(ids) + longest > self._context:
            raise ContextTooLong(
                f"the prompt and its longest label have {len(ids) + longest} tokens, "
                f"and the model's context holds {self._context}"
            )
        return ids

    def content_free(self) -> tuple[tuple[int, ...], ...]:
        """Prompts with texts that say nothing, for the labels' prior. Raises ContextTooLong."""
        return tuple(self.tokenise(text) for text in CONTENT_FREE)

    def stable_tokens(self, first_items: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The tokens that every item's prompt begins with, as far as probes and the first items tell.

        Chosen among whole prompts in token space, so that a text that merges with what stands before it only makes
        the prefix a token shorter.
        """
        prompts = [*first_items, *self._probes]
        # One token at least is left to compute, even where two prompts are equal.
        longest = min(len(ids) for ids in prompts) - 1
        return tuple(prompts[0][: next((i for i in range(longest) if len({p[i] for p in prompts}) > 1), longest)])

    @cached_property
    def _probes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self._engine.prepare(self._request(probe)).ids for probe in PROBES)

    def compute(self, past: Sequence[KVRun], ids: Sequence[int], *, kv_dtype: str | None = None) -> KVRun | None:
        """The KV of `ids`, which follow `past`; None where a value is not finite."""
        runs = prefill(self._loaded, past, [ids], kv_dtype=kv_dtype)
        return runs[0] if runs is not None else None

    def ready(self, runs: Sequence[KVRun]) -> tuple[KVRun, ...]:
        """The same KV as passes take it without a copy, so that each pack does not make one: in the model's precision,
        and in one piece where a pack would have to gather it."""
        from cachestack.engines.transformers.attention import can_share
        from cachestack.engines.transformers.growing import MAX_PARTS

        model = self._loaded.model
        same = tuple(_in_dtype(run, self._loaded.dtype) for run in runs)
        with self._loaded.lock:
            if len(same) <= 1 or (can_share(model) and len(same) <= MAX_PARTS):
                return same
        return (run_of(cut(fork(same, model.config), 0, sum(run.num_tokens for run in same)), 0),)

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

    def scores_of(self, row: Any) -> LabelScores:
        """Scores from a row that was kept. Only where `row_suffices`."""
        assert self.row_suffices, "these labels need more than one row"
        return LabelScores(tuple(first_token_scores(self.labels, row).tolist()), row)

    def keepable(self, scored: LabelScores) -> KeepableRow | None:
        """The row for keeping; None where a value is not finite."""
        import torch

        row = scored.row
        if not bool(torch.isfinite(row).all()):
            return None
        num_bytes = row.numel() * row.element_size()
        # A row of a pack is a view: kept as it is, it would keep the rows of the whole pack.
        return KeepableRow(row if row.untyped_storage().nbytes() == num_bytes else row.clone(), num_bytes)

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
        except EngineError:
            raise
        except Exception as error:  # each model's code and torch have errors of their own
            raise EngineError(f"the model failed while it scored labels: {error}") from error


def check_text(text: str) -> None:
    """Raises RequestError for what is no text to score, whatever the model."""
    if not isinstance(text, str):
        raise RequestError(f"an item is text, not {type(text).__name__}")
    if not text.strip():
        raise RequestError("the text is empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RequestError("the text is not valid Unicode (a lone surrogate)") from None


def _plain(scored: Sequence[Scored]) -> tuple[LabelScores, ...]:
    return tuple(LabelScores(tuple(s.scores.tolist()), s.row) for s in scored)


def _in_dtype(run: KVRun, dtype: str) -> KVRun:
    payload = run.payload.as_dtype(dtype)
    return run if payload is run.payload else replace(run, payload=payload)
