"""A model's tokenizer and chat template without its weights, for counting and comparing many prompts."""

from __future__ import annotations

import importlib.util
import re
import statistics
import time
from typing import Any

import numpy as np

from cachestack.engines.token_space import Ints, Tokens, Unit
from cachestack.engines.transformers.load import Loaded
from cachestack.engines.transformers.template import ChatTemplate
from cachestack.errors import MissingExtra, ModelError, ModelNotFound, RequestError
from cachestack.models.resolve import resolve
from cachestack.requests import Message, Request

MAX_KEPT_TOKENS = 4_000_000
NUM_CHECKED = 8
"""So many prompts are also tokenised whole, to see that this tokenizer may be given the texts between special tokens
one by one."""
MEASURED_TOKENS = (64, 320)


def open_tokenizer(model_ref: str) -> Any:
    """The tokenizer of a model by name, hub id or path; no weights are read.

    Raises ModelNotFound, ModelError (also for a tokenizer that cannot say where its tokens stand), MissingExtra.
    """
    if importlib.util.find_spec("transformers") is None:
        raise MissingExtra("transformers", "local")
    path = resolve(model_ref, "llm")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except OSError as error:
        raise ModelNotFound(f"the tokenizer of {model_ref!r} cannot be opened: {_first_line(error)}") from error
    except (ValueError, KeyError, ImportError, RuntimeError) as error:
        raise ModelError(f"the tokenizer of {model_ref!r} cannot be used: {_first_line(error)}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(f"the tokenizer of {model_ref!r} does not say where its tokens stand; name another model")
    return tokenizer


class PromptTokens:
    """Renders and tokenises. Texts between special tokens are tokenised once and kept: prompts of a log share most."""

    unit: Unit = "tokens"

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._template = ChatTemplate(tokenizer)
        self._special = _specials(tokenizer)
        self._parts = re.compile("|".join(re.escape(t) for t in sorted(self._special, key=len, reverse=True)) or "(?!)")
        self._num_to_check = NUM_CHECKED
        self._kept: dict[str, tuple[Ints, Ints]] = {}
        self._num_kept = 0

    @property
    def bos(self) -> str | None:
        bos = getattr(self._tokenizer, "bos_token", None)
        return str(bos) if bos else None

    @property
    def template_asks_for_the_date(self) -> bool:
        source = self._template.source or ""
        return "strftime_now" in source or "date_string" in source

    def render(self, messages: tuple[Message, ...]) -> str | None:
        """The text of a prompt; None for messages that the chat template refuses."""
        try:
            return self._template.render(Request(messages)).text
        except RequestError:
            return None

    def encode(self, text: str, *, is_rendered: bool) -> Tokens:
        """See TokenSpace."""
        has_template = is_rendered and self._template.source is not None
        if not has_template:
            return Tokens(*self._whole(text, add_special_tokens=True))
        if self._num_to_check < 0:
            return Tokens(*self._whole(text, add_special_tokens=False))
        ids, starts = self._by_parts(text)
        if self._num_to_check:
            self._num_to_check -= 1
            whole = self._whole(text, add_special_tokens=False)
            if not np.array_equal(whole[0], ids):
                self._num_to_check = -1
                return Tokens(*whole)
        return Tokens(ids, starts)

    def _whole(self, text: str, *, add_special_tokens: bool) -> tuple[Ints, Ints]:
        encoded = self._tokenizer(
            text, add_special_tokens=add_special_tokens, return_offsets_mapping=True, verbose=False
        )
        ids = np.array(encoded["input_ids"], dtype=np.int32)
        offsets = np.array(encoded["offset_mapping"], dtype=np.int32).reshape(-1, 2)
        if add_special_tokens and len(ids) > 1 and not offsets[-1].any():
            ids, offsets = ids[:-1], offsets[:-1]  # an EOS behind the text says nothing of the prompt
        starts = offsets[:, 0]
        return ids, np.maximum.accumulate(starts) if len(starts) else starts

    def _by_parts(self, text: str) -> tuple[Ints, Ints]:
        ids: list[Ints] = []
        starts: list[Ints] = []
        at = 0
        for found in self._parts.finditer(text):
            self._add(text[at : found.start()], at, ids, starts)
            ids.append(np.array([self._special[found[0]]], dtype=np.int32))
            starts.append(np.array([found.start()], dtype=np.int32))
            at = found.end()
        self._add(text[at:], at, ids, starts)
        empty = np.zeros(0, dtype=np.int32)
        return (np.concatenate(ids), np.concatenate(starts)) if ids else (empty, empty)

    def _add(self, part: str, at: int, ids: list[Ints], starts: list[Ints]) -> None:
        if not part:
            return
        known = self._kept.get(part)
        if known is None:
            known = self._whole(part, add_special_tokens=False)
            self._num_kept += len(known[0])
            if self._num_kept > MAX_KEPT_TOKENS:
                self._kept.clear()
                self._num_kept = len(known[0])
            self._kept[part] = known
        ids.append(known[0])
        starts.append(known[1] + at)


def measure_ms_per_token(loaded: Loaded, *, repetitions: int = 3) -> float:
    """What a prompt token costs on this machine, in milliseconds: the slope between a short and a longer pass."""
    import torch

    short, long = MEASURED_TOKENS
    ids = torch.randint(100, 1000, (1, long), generator=torch.Generator().manual_seed(0)).to(loaded.device)
    times: dict[int, list[float]] = {short: [], long: []}
    with loaded.lock, torch.no_grad():
        loaded.model(ids[:, :short], use_cache=False)
        for _ in range(repetitions):
            for num_tokens, seconds in times.items():
                begun = time.perf_counter()
                loaded.model(ids[:, :num_tokens], use_cache=False, logits_to_keep=1)[0].sum().item()
                seconds.append(time.perf_counter() - begun)
    spent = statistics.median(times[long]) - statistics.median(times[short])
    return max(0.0, 1000 * spent / (long - short))


def _specials(tokenizer: Any) -> dict[str, int]:
    """Special tokens that are found in a text before anything else is, and take no white space with them."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    plain = {
        str(token): int(i)
        for i, token in added.items()
        if token.special and not (token.lstrip or token.rstrip or token.single_word or token.normalized)
    }
    return plain if len(plain) == len(added) else {}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
