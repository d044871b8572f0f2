"""Which encoders a state folder has met, by what they do: the vectors of a few fixed texts.

A fingerprint says what an encoder is made of. Should the vectors change all the same (another library, another device,
an encoder whose author forgot to change its fingerprint), the canary texts show it: then it is another encoder, with a
number behind its fingerprint, and entries of the two are never compared.

::

    encoders/
      <fingerprint>.npz         canary vectors, and the name by which it can be opened again
      <fingerprint>-1.npz       the same fingerprint, other vectors
      <fingerprint>.moved       partitions whose entries all are this encoder's, one digest a line
      current.json              the encoder in use, and those before it, the latest first
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import tempfile
import threading
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cachestack.keys import Partition, digest
from cachestack.semantic.base import Encoded, Encoder, TokenEncoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger("cachestack")
CANARIES = (
    "How do I reset my password?",
    "Convert 250 USD to EUR",
    "Trains from Leeds to York on Friday at 10:30",
    "Où est ma commande n° 4711 ?",
    "Which plants do not need any sun at all?",
    "error code E-2291 when I save a file",
    "yes",
    "My parcel has not come, the shop is closed, and nobody answers the telephone. What can I do now?",
)
MIN_COSINE = 0.999
MAX_VARIANTS = 32
_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,100}")


@dataclass(frozen=True, slots=True)
class Met:
    """An encoder that was met: `ref` opens it again, if it is still there."""

    fingerprint: str
    ref: str


class KnownEncoders:
    """The encoders of one state folder. A folder that cannot be used recognises nobody, and no one is the worse."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def recognise(self, encoder: Encoder, ref: str) -> str:
        """The fingerprint under which its vectors are kept: its own, or with a number where it has changed."""
        base = encoder.fingerprint
        texts = [text for text in CANARIES if encoder.fits_window(text)]
        if not texts:
            return base
        vectors = np.asarray(encoder.encode(texts), dtype=np.float32)
        try:
            return self._recognised(base, vectors, ref)
        except OSError as error:
            log.warning("the encoder cannot be recognised from before, as %s cannot be used: %s", self.folder, error)
            return base

    def use(self, fingerprint: str) -> tuple[Met, ...]:
        """Say that this one is in use now; returns those before it, the latest first."""
        current = self._current()
        if not current or current[0] != fingerprint:
            self._write(self.folder / f"{_name(fingerprint)}.moved", b"")  # entries of others may have come
            current = [fingerprint, *(f for f in current if f != fingerprint)]
            self._write(self.folder / "current.json", json.dumps(current).encode())
        found = ((f, self._read(f)) for f in current[1:])
        return tuple(Met(f, read[1]) for f, read in found if read is not None)

    def has_moved(self, fingerprint: str, partition: Partition) -> bool:
        with suppress(OSError):
            return partition.digest in (self.folder / f"{_name(fingerprint)}.moved").read_text().split()
        return False

    def note_moved(self, fingerprint: str, partition: Partition) -> None:
        with suppress(OSError), (self.folder / f"{_name(fingerprint)}.moved").open("a") as file:
            file.write(f"{partition.digest}\n")

    def canaries(self, fingerprint: str) -> NDArray[np.float32] | None:
        """The vectors by which this encoder is known here; None where it was never met."""
        found = self._read(fingerprint)
        return None if found is None else found[0]

    def meet(self, fingerprint: str, vectors: NDArray[np.float32]) -> bool:
        """Whether what an encoder elsewhere made may stand beside what the one of this fingerprint makes here.

        One that was never met here is remembered by these vectors, so that it is found out when it is used. Raises
        OSError where it cannot be.
        """
        if self._read(fingerprint) is None:
            self._keep(fingerprint, vectors, "")
        found = self._read(fingerprint)
        return found is not None and _are_same(found[0], vectors)

    def _recognised(self, base: str, vectors: NDArray[np.float32], ref: str) -> str:
        for number in range(MAX_VARIANTS):
            fingerprint = base if number == 0 else f"{base}-{number}"
            before = self._read(fingerprint)
            if before is None:
                self._keep(fingerprint, vectors, ref)
                before = self._read(fingerprint)  # another process may have been faster
            if before is None or _are_same(before[0], vectors):
                if number:
                    log.warning("the encoder %s gives other vectors than before; it is taken for another one", ref)
                if before is not None and not before[1]:  # met by its vectors alone until now
                    self._write(self._path(fingerprint), _packed(vectors, ref))
                return fingerprint
        return f"{base}-{digest(vectors.tobytes())[:16]}"

    def _read(self, fingerprint: str) -> tuple[NDArray[np.float32], str] | None:
        """Canary vectors and ref; None where there are none that can be read."""
        try:
            with np.load(self._path(fingerprint), allow_pickle=False) as kept:
                return np.asarray(kept["vectors"], dtype=np.float32), str(kept["ref"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
            with suppress(OSError):
                self._path(fingerprint).unlink()
            return None

    def _keep(self, fingerprint: str, vectors: NDArray[np.float32], ref: str) -> None:
        """Whole or not at all, and never over another process's."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".tmp", delete=False) as file:
            file.write(_packed(vectors, ref))
        try:
            with suppress(FileExistsError):
                os.link(file.name, self._path(fingerprint))
        finally:
            os.unlink(file.name)

    def _path(self, fingerprint: str) -> Path:
        return self.folder / f"{_name(fingerprint)}.npz"

    def _current(self) -> list[str]:
        try:
            found = json.loads((self.folder / "current.json").read_bytes())
            return [str(f) for f in found] if isinstance(found, list) else []
        except (OSError, ValueError):
            return []

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".tmp", delete=False) as file:
                file.write(data)
            os.replace(file.name, path)
        except OSError as error:
            log.warning("%s cannot be written: %s", path, error)


class RecognisedEncoder:
    """An Encoder that goes by the fingerprint under which the state folder knows its vectors.

    It is recognised at the first question, by encoding the canary texts.
    """

    def __init__(self, encoder: Encoder, known: KnownEncoders, ref: str) -> None:
        self._encoder = encoder
        self._known = known
        self._ref = ref
        self._recognising = threading.Lock()
        self._fingerprint: str | None = None
        if hasattr(encoder, "encode_with_tokens"):
            self.encode_with_tokens = self._encode_with_tokens
        if hasattr(encoder, "count_tokens"):
            self.count_tokens: Callable[[str], int] = encoder.count_tokens

    @property
    def name(self) -> str:
        return self._encoder.name

    @property
    def languages(self) -> frozenset[str]:
        return self._encoder.languages

    @property
    def weights_sha256(self) -> str | None:
        """As the encoder says; None where it says nothing."""
        return getattr(self._encoder, "weights_sha256", None)

    @property
    def window_tokens(self) -> int:
        return self._encoder.window_tokens

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    @property
    def fingerprint(self) -> str:
        """Reads and, for the first time, writes the state folder."""
        found = self._fingerprint
        if found is None:
            with self._recognising:
                if self._fingerprint is None:
                    self._fingerprint = self._known.recognise(self._encoder, self._ref)
                found = self._fingerprint
        return found

    def fits_window(self, text: str) -> bool:
        return self._encoder.fits_window(text)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encoder.encode(texts)

    def _encode_with_tokens(self, texts: Sequence[str]) -> list[Encoded]:
        encoder: TokenEncoder = self._encoder  # type: ignore[assignment]  # it has the method
        return encoder.encode_with_tokens(texts)


def _are_same(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    if one.shape != other.shape:
        return False
    return bool(np.all(np.einsum("ij,ij->i", one, other) >= MIN_COSINE))


def _packed(vectors: NDArray[np.float32], ref: str) -> bytes:
    file = io.BytesIO()
    np.savez(file, vectors=vectors, ref=np.array(ref))
    return file.getvalue()


def _name(fingerprint: str) -> str:
    return fingerprint if _PLAIN.fullmatch(fingerprint) else digest(fingerprint.encode("utf-8", "surrogatepass"))
