"""How many first tokens of a text are the same whatever follows it.

No tokenizer can be asked that. It is tried: the text is tokenised with many continuations, and what their tokens share
from the beginning is kept. Two kinds of continuation are tried:

- *probes*, a text of each class of characters that normalisers and pre-tokenizers tell apart;
- *remainders*, what completes an ending of the text to a token of the vocabulary. In byte-pair encoding a token
  sequence is what a text gives exactly where each two neighbours are what their own text gives, so that a token which
  crosses the end of the text in any continuation does so in that of its own remainder. (Not for tokenizers written in
  Python, whose vocabularies are in alphabets of their own.)

A continuation that was not foreseen costs reuse, never truth: kept tokens are compared with those of each prompt.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from cachestack.engines.transformers.tokenised import Tokenised, tokenise

LETTERS = ("a", "A", "s", "ll", "'s", "é", "ß", "ﬁ", "日", "ひ", "ا", "\U00010380", "0", "00", "000")
SIGNS = ("'", '"', "_", "-", "--", ".", "..", ",", "/", "?", "<", "[", "|", "。", "\x00")
SPACES = (
    " ",
    "  ",
    "   ",
    " a",
    " 0",
    " .",
    "\n",
    "\n\n",
    "\n\n\n",
    "\n a",
    " \n",
    "\t",
    "\ta",
    "\r\n",
    "\u00a0",
    "\u3000",
)
COMBINING = ("\u0301", "\u0327\u0301", "\u064e", "\u0901", "\u0e33", "\u1161", "\u11a8", "\u11a8a", "\u20e3", "\ufe0f")
EMOJI = ("\u200d", "\U0001f3fd", "\U0001f600", "\U0001f1eb", "\U0001f1eb\U0001f1f7")
LONG_WORD = "a" * 101  # WordPiece gives up on words of more than a hundred characters
PROBES = ("", *LETTERS, *SIGNS, *SPACES, *COMBINING, *EMOJI, LONG_WORD)
MAX_TOKEN_CHARS = 64
MAX_REMAINDERS = 256
LONG_TEXT = 600
NUM_REMEMBERED = 256
COMPLETIONS = (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\xa0\x80", b"\xa0\x80\x80", b"\x90\x80\x80", b"\xbf")


class Continuations:
    """Tries continuations with one tokenizer, and remembers the results: stable texts come back with every request."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.shared = functools.lru_cache(maxsize=NUM_REMEMBERED)(self._shared)

    def _shared(self, text: str, *, stripped: bool = False) -> Tokenised:
        """The first tokens of `text` that no continuation changes. `stripped`: none begins with white space."""
        whole = tokenise(self._tokenizer, text, add_special_tokens=False)
        num_shared = len(whole.ids)
        for continuation in self._continuations(text):
            if stripped and continuation[:1].isspace():
                continue
            ids = self._encode(text + continuation)
            if tuple(ids[:num_shared]) != whole.ids[:num_shared]:
                num_shared = next(i for i in range(num_shared) if i >= len(ids) or ids[i] != whole.ids[i])
        return Tokenised(whole.ids[:num_shared], whole.spans and whole.spans[:num_shared])

    def _encode(self, text: str) -> list[int]:
        if whole := getattr(self._tokenizer, "backend_tokenizer", None):  # without the wrapper: a tenth of the time
            return list(whole.encode(text, add_special_tokens=False).ids)
        return list(tokenise(self._tokenizer, text, add_special_tokens=False).ids)

    def _continuations(self, text: str) -> Iterator[str]:
        yield from PROBES
        if self._vocabulary is not None and len(text) <= LONG_TEXT:
            yield from dict.fromkeys(self._vocabulary.remainders(text))

    @functools.cached_property
    def _vocabulary(self) -> _Vocabulary | None:
        if not getattr(self._tokenizer, "is_fast", False):
            return None
        return _Vocabulary(self._tokenizer.backend_tokenizer)


class _Vocabulary:
    """The vocabulary in order, in its own alphabet: bytes as letters, spaces as ▁, "##" within words."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._pieces = sorted(inner.get_vocab(with_added_tokens=False))
        self._inside = getattr(inner.model, "continuing_subword_prefix", None) or ""
        self._end = getattr(inner.model, "end_of_word_suffix", None) or ""
        self._by_bytes = self._written("é").endswith("Ã©")
        self._bytes = {letter: byte for byte, letter in enumerate(byte_letters())}

    def remainders(self, text: str) -> Iterator[str]:
        """What follows an ending of `text` in the tokens that begin with it; the longest endings first."""
        last = self._written(text)[-MAX_TOKEN_CHARS:]
        for start in range(len(last)):
            ending = last[start:]
            for begin in dict.fromkeys((ending, self._inside + ending)):
                for piece in self._beginning_with(begin):
                    remainder = piece[len(begin) :].removesuffix(self._end)
                    if remainder and (continuation := self._read(remainder)):
                        yield continuation

    def _beginning_with(self, begin: str) -> list[str]:
        first = bisect_left(self._pieces, begin)
        last = bisect_left(self._pieces, begin + chr(0x10FFFF), lo=first)
        return self._pieces[first : last : 1 + (last - first) // MAX_REMAINDERS]

    def _written(self, text: str) -> str:
        """The last stretch of `text` that the model sees as one, as the vocabulary writes it."""
        if self._inner.normalizer is not None:
            text = self._inner.normalizer.normalize_str(text)
        if self._inner.pre_tokenizer is None:
            return text
        parts = self._inner.pre_tokenizer.pre_tokenize_str(text)
        return str(parts[-1][0]) if parts else ""

    def _read(self, remainder: str) -> str:
        """Text for a stretch of the vocabulary's; a character that it breaks off is completed somehow."""
        if not self._by_bytes:
            return remainder.replace("▁", " ")
        if not all(letter in self._bytes for letter in remainder):
            return ""
        raw = bytes(self._bytes[letter] for letter in remainder)
        for completion in COMPLETIONS:
            try:
                return (raw + completion).decode()
            except UnicodeDecodeError:
                continue
        return ""


def byte_letters() -> str:
    """The 256 letters by which byte-level vocabularies write bytes, in the order of the bytes.

    Printable ones of Latin-1 stand for themselves, the others for those from U+0100 on (GPT-2's alphabet).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))
