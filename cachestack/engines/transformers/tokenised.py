"""The tokens of a text, and which part of the text each stands for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any

from cachestack.errors import RequestError


@dataclass(frozen=True, slots=True)
class Tokenised:
    """`spans`: the characters each token stands for, `[start, end)`, or None where the tokenizer does not say.

    Ends never decrease. Starts may be late: some tokenizers leave white space at the beginning of a token out.
    `num_added`: tokens before the first one of the text, such as a BOS.
    """

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...] | None = None
    num_added: int = 0
    _ends: tuple[int, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple(end for _, end in self.spans or ()))

    def num_within(self, end: int) -> int:
        """How many first tokens stand for characters before `end` alone."""
        return bisect_right(self._ends, end)

    def is_cut(self, place: int) -> bool:
        """Whether one token stands for characters before and after `place`."""
        assert self.spans is not None
        index = self.num_within(place)
        return index < len(self.ids) and self.spans[index][0] < place

    def starting_at(self, place: int) -> range:
        """The tokens whose characters begin at `place`: several where one character takes several tokens."""
        assert self.spans is not None
        first = bisect_left(self.spans, place, lo=self.num_added, key=_start)
        return range(first, bisect_right(self.spans, place, lo=first, key=_start))


def tokenise(tokenizer: Any, text: str, *, add_special_tokens: bool) -> Tokenised:
    """`text` in one pass. A tokenizer that also ends every text with its EOS has that one taken off again.

    Raises RequestError for a text that is not valid Unicode.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"the prompt is not valid Unicode: a lone surrogate, {text[error.start]!r}; mend where the text comes from"
        ) from None
    if not getattr(tokenizer, "is_fast", False):
        return _without_spans(tokenizer, text, add_special_tokens)
    (encoding,) = tokenizer(text, add_special_tokens=add_special_tokens, verbose=False).encodings
    ids, spans = encoding.ids, encoding.offsets
    if not add_special_tokens:
        return Tokenised(tuple(ids), tuple(spans))
    # Only what the tokenizer added is marked: a BOS or EOS that the text itself spells out is not.
    added = encoding.special_tokens_mask
    num_added = next((i for i, mark in enumerate(added) if not mark), len(added))
    spans = [(len(text), len(text)) if mark and i >= num_added else spans[i] for i, mark in enumerate(added)]
    if ids and added[-1] and ids[-1] == getattr(tokenizer, "eos_token_id", None):
        ids, spans = ids[:-1], spans[:-1]
    return Tokenised(tuple(ids), tuple(spans), min(num_added, len(ids)))


def encode(tokenizer: Any, text: str, *, add_special_tokens: bool) -> list[int]:
    """The ids alone; see `tokenise`."""
    return list(tokenise(tokenizer, text, add_special_tokens=add_special_tokens).ids)


def _start(span: tuple[int, int]) -> int:
    return span[0]


def _without_spans(tokenizer: Any, text: str, add_special_tokens: bool) -> Tokenised:
    ids = list(tokenizer(text, add_special_tokens=add_special_tokens, verbose=False)["input_ids"])
    if not add_special_tokens:
        return Tokenised(tuple(ids))
    bare = list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    eos = getattr(tokenizer, "eos_token_id", None)
    if ids and ids[-1] == eos and (not bare or bare[-1] != eos):
        ids.pop()
    num_added = next((i for i in range(len(ids)) if ids[i:] == bare[: len(ids) - i]), 0)
    return Tokenised(tuple(ids), num_added=num_added)
