"""A model's fast tokenizer by itself: tokens, where they stand in the text, and how many there are.

Without the cutting and padding that the tokenizer's file asks for, and without state that calls could disturb: it may
be used from several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachestack.errors import MissingExtra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tokenised:
    """One text, prompt and special tokens included. `own` are the rows that are wordpieces of the text itself;
    `spans`, `[len(own), 2]`, say where in the text each stands, in characters."""

    ids: list[int]
    type_ids: list[int]
    own: NDArray[np.intp]
    spans: NDArray[np.int32]


class FastTokenizer:
    """Reads a `tokenizer.json`. `prompt` is put in front of every text."""

    def __init__(self, path: Path, prompt: str = "") -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtra("tokenizers", "local") from error
        self._tokenizer: Any = Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._prompt = prompt

    def count(self, text: str) -> int:
        """Tokens of prompt and text, special tokens included. Raises TypeError or ValueError for a lone surrogate."""
        return len(self._tokenizer.encode(self._prompt + text))

    def tokenise(self, texts: Sequence[str]) -> list[Tokenised]:
        """Raises TypeError or ValueError for a text that cannot be tokenised."""
        encodings = self._tokenizer.encode_batch([self._prompt + text for text in texts])
        return [self._tokenised(encoding) for encoding in encodings]

    def _tokenised(self, encoding: Any) -> Tokenised:
        import numpy as np

        start = len(self._prompt)
        spans = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
        special = np.array(encoding.special_tokens_mask, dtype=bool)
        own = np.flatnonzero(~special & (spans[:, 1] > start))
        return Tokenised(encoding.ids, encoding.type_ids, own, np.maximum(spans[own] - start, 0))
