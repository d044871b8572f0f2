"""Opening a language model once: resolved by name, on the device and in the dtype that the machine allows."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cachestack.errors import ConfigError, MissingExtra, ModelError, ModelNotFound
from cachestack.models.resolve import resolve

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
DTYPES = ("float32", "bfloat16", "float16")
GQA_VARIABLE = "TRANSFORMERS_SDPA_FORCE_GQA"


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model ready to run. Hold `lock` during each pass: one pass at a time uses all cores, and a few models keep
    state between the layers of a pass. `ref` is what was opened: a local path or a hub id."""

    model: Any
    tokenizer: Any
    ref: str
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")


class Once(Generic[T]):
    """A value that is made by the first `get`, once, whichever thread comes first. A failure is not remembered."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._value: T | None = None

    def get(self) -> T:
        if self._value is None:
            with self._lock:
                if self._value is None:
                    self._value = self._make()
        return self._value


def load(model_ref: str, device: str | None = None, dtype: str | None = None) -> Loaded:
    """Open a language model by name, hub id or path.

    `device` and `dtype`: see `choose_device` and `choose_dtype`. Raises ModelNotFound (says what to do), ModelCorrupt,
    ModelError, ConfigError for an impossible device or dtype, MissingExtra without torch and Transformers.
    """
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "local")
    path = resolve(model_ref, "llm")
    where = choose_device(device)
    kind = choose_dtype(where, dtype)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    shows_progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, kind))
    except OSError as error:
        raise ModelNotFound(f"the model {model_ref!r} cannot be opened: {_first_line(error)}") from error
    except (ValueError, KeyError, ImportError, RuntimeError) as error:
        raise ModelError(f"the model {model_ref!r} cannot be used: {_first_line(error)}") from error
    finally:
        if shows_progress:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
    model.to(where)
    return as_loaded(model, tokenizer, path)


def as_loaded(model: Any, tokenizer: Any, ref: str = "in memory") -> Loaded:
    """Parts that are open already. The model is set to evaluation, without gradients."""
    if next(model.parameters()).device.type == "cpu":
        # Grouped-query attention without copying keys and values for each query head: Transformers offers it on the
        # CPU only through this variable. A value set by the user stays.
        os.environ.setdefault(GQA_VARIABLE, "1")
    return Loaded(model.eval().requires_grad_(False), tokenizer, ref)


def choose_device(asked: str | None = None) -> str:
    """`asked`, or the best of cuda, mps, cpu. Raises ConfigError for one that this machine does not have."""
    import torch

    has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if asked is None:
        return next(name for name in ("cuda", "mps", "cpu") if has[name])
    if not has.get(asked.split(":")[0], False):
        usable = ", ".join(name for name, there in has.items() if there)
        raise ConfigError(f"device {asked!r} is not usable here; usable: {usable}")
    return asked


def choose_dtype(device: str, asked: str | None = None) -> str:
    """`asked`, or what the device is good at: cuda bfloat16 (float16 on older ones), mps and cpu float32.

    Raises ConfigError for an unknown dtype, and for float16 on the CPU (slow, and operators are missing).
    """
    import torch

    kind = device.split(":")[0]
    if asked is None:
        if kind == "cuda":
            return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
        return "float32"
    if asked not in DTYPES:
        raise ConfigError(f"dtype {asked!r} is not known; allowed: {', '.join(DTYPES)}")
    if asked == "float16" and kind == "cpu":
        raise ConfigError("dtype float16 is slow and incomplete on the CPU; use float32 or bfloat16")
    return asked


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
