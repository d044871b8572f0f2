"""What the semantic layer is made of: an encoder, an index, guards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cachestack.entries import Candidate
from cachestack.keys import Partition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Encoder(Protocol):
    """Turns texts into unit vectors. Loading happens at the first call that needs weights."""

    @property
    def name(self) -> str: ...

    @property
    def languages(self) -> frozenset[str]:
        """ISO 639-1 codes it was trained for; empty means unknown."""
        ...

    @property
    def window_tokens(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides the vectors: weights, tokenizer, pooling, library."""
        ...

    @property
    def dimension(self) -> int: ...

    def fits_window(self, text: str) -> bool:
        """Whether the whole text is seen by the encoder, nothing cut off."""
        ...

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """`[len(texts), dimension]`, each row of length 1. Raises EncoderError for values that are not finite."""
        ...


@dataclass(frozen=True, slots=True)
class TokenStates:
    """The wordpieces of one text, without special tokens, padding and prompt, in the order of the text.

    `states`: last hidden layer, `[n, hidden]`, not normalised. `spans`: `[n, 2]`, where each begins and ends in the
    text as it was given, in characters.
    """

    states: NDArray[np.float32]
    spans: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Encoded:
    """`vector`: `[dimension]`, of length 1. `tokens`: None where the encoder has none to give for this text."""

    vector: NDArray[np.float32]
    tokens: TokenStates | None = None


class TokenEncoder(Encoder, Protocol):
    """An Encoder that can also give what it made of each wordpiece."""

    def encode_with_tokens(self, texts: Sequence[str]) -> list[Encoded]:
        """The vectors of `encode`, and the token states of the same pass."""
        ...


class StatesPacker(Protocol):
    """Makes of token states the bytes that an entry keeps (`Entry.states`)."""

    def pack(self, text: str, tokens: TokenStates) -> bytes: ...


class Index(Protocol):
    """Nearest entries of a partition and a group of contracts that differ in nothing but the history."""

    def search(
        self, partition: Partition, contract: str, vector: bytes, encoder: str, num_candidates: int
    ) -> list[Candidate]:
        """Best first, by cosine. Only entries made with the same encoder fingerprint. Sees all writes to the store."""
        ...
