"""What must be equal for kept KV to be reusable, as one digest.

Weights (adapters too), configuration, dtype and device, attention, tokenizer and template, library versions. Files are
hashed once and remembered by path, size and time of change; tensors changed after loading are hashed themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachestack.engines.transformers.adapter import attention_name
from cachestack.engines.transformers.load import GQA_VARIABLE, Loaded
from cachestack.keys import canonical_json, digest

FORMAT = "1"
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")
LIBRARIES = ("torch", "transformers", "tokenizers")
VOLATILE_KEYS = ("_name_or_path", "transformers_version", "torch_dtype")
LISTENERS = "transformers."
CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class FileState:
    """What tells that a file was changed. `size` is -1 for a file that is gone."""

    path: Path
    size: int
    mtime_ns: int

    @staticmethod
    def of(path: Path) -> FileState:
        try:
            stat = path.stat()
        except OSError:
            return FileState(path, -1, 0)
        return FileState(path, stat.st_size, stat.st_mtime_ns)


class FileDigests:
    """SHA-256 of files, remembered in memory and, where it can be written, in a small JSON file.

    The JSON only saves time: one that is missing, broken or unwritable means that files are hashed again.
    """

    def __init__(self, memory: Callable[[], Path | None] = lambda: None) -> None:
        self._memory = memory
        self._known: dict[str, list[Any]] | None = None
        self._lock = threading.Lock()

    def of(self, path: Path) -> str:
        path = path.resolve()
        stat = path.stat()
        with self._lock:
            if self._known is None:
                self._known = self._read()
            known = self._known.get(str(path))
            if known is None or known[:2] != [stat.st_size, stat.st_mtime_ns]:
                known = [stat.st_size, stat.st_mtime_ns, file_sha256(path)]
                self._known = self._read() | self._known | {str(path): known}
                self._write()
            return str(known[2])

    def _read(self) -> dict[str, list[Any]]:
        path = self._memory()
        try:
            values = json.loads(path.read_text("utf-8")) if path is not None else {}
            return {k: v for k, v in values.items() if isinstance(v, list) and len(v) == 3}
        except (OSError, ValueError, AttributeError):
            return {}

    def _write(self) -> None:
        path = self._memory()
        if path is None:
            return
        aside = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(self._known), "utf-8")
            os.replace(aside, path)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)


class Fingerprint:
    """The fingerprint of one loaded model, hashed anew when its weights, adapters or attention have changed."""

    def __init__(self, loaded: Loaded, files: FileDigests, *, from_files: bool) -> None:
        self._loaded = loaded
        self._digests = files
        folder = weights_folder(loaded.ref) if from_files else None
        self._files = tuple(FileState.of(p) for p in weight_files(folder)) if folder is not None else ()
        self._at_load = self._stamp = Stamp(loaded.model)
        self._attention_then = ""
        self._value = ""
        self._lock = threading.Lock()

    @property
    def value(self) -> str:
        model, attention = self._loaded.model, self._attention()
        with self._lock:
            if attention != self._attention_then or not self._stamp.holds(model):
                self._stamp, self._attention_then = Stamp(model), attention
                self._value = self._compute(unchanged=self._at_load.holds(model))
            return self._value

    def _compute(self, *, unchanged: bool) -> str:
        config = {k: v for k, v in self._loaded.model.config.to_dict().items() if k not in VOLATILE_KEYS}
        parts = (
            FORMAT,
            self._files_digest() if unchanged and self._files else tensors_digest(self._loaded.model),
            canonical_json(json.loads(json.dumps(config, default=str))).decode(),
            self._loaded.dtype,
            self._loaded.device.type,
            self._attention(),
            tokenizer_digest(self._loaded.tokenizer),
            *(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES),
        )
        return digest(b"fingerprint", *(part.encode() for part in parts))

    def _files_digest(self) -> str:
        if any(FileState.of(f.path) != f for f in self._files):  # replaced on disk since they were loaded
            return tensors_digest(self._loaded.model)
        return digest(*(f"{f.path.name} {self._digests.of(f.path)}".encode() for f in self._files))

    def _attention(self) -> str:
        return f"{attention_name(self._loaded.model)} {os.environ.get(GQA_VARIABLE, '0')}"


class Stamp:
    """A model's state at one moment, by which a later change is told: tensors by identity and count of writes,
    switches by value.

    Tensors are remembered by their ids, and by weak references: an id, like an address, is given again once its tensor
    is gone.
    """

    def __init__(self, model: Any) -> None:
        self._values = _states(model)
        self._tensors = [weakref.ref(t) for kept in (model.parameters(), model.buffers()) for t in kept]

    def holds(self, model: Any) -> bool:
        """Whether nothing has changed: no weight or buffer was replaced or written to, no adapter added, chosen, scaled
        or switched off, no hook set.

        Asked for twice a request, so it reads no tensor. Torch counts the writes to each (`_version`); only writes
        through `.data` escape it.
        """
        return self._values == _states(model) and all(ref() is not None for ref in self._tensors)


def _states(model: Any) -> list[object]:
    """Walks the modules by hand, which takes a quarter of the time of `named_parameters` and `named_modules`."""
    states: list[object] = []
    add = states.append
    pending = [model]
    while pending:
        module = pending.pop()
        own = module.__dict__
        for kept in (own["_parameters"], own["_buffers"]):
            for tensor in kept.values():
                if tensor is not None:
                    add(id(tensor))
                    add(tensor.data_ptr())
                    try:
                        add(tensor._version)
                    except RuntimeError:  # made in inference mode, where writes are not counted
                        add(None)
        if own["_forward_pre_hooks"] or own["_forward_hooks"] or _may_have_adapters(module):
            states.extend(_switches(module))
        children = own["_modules"]
        if children:
            pending += [child for child in children.values() if child is not None]
    return states


def tensors_digest(model: Any) -> str:
    """SHA-256 over all tensors of the model, by name, dtype, shape and bytes, and over its active adapters."""
    import torch

    h = hashlib.sha256()
    tensors = dict(model.named_buffers()) | model.state_dict(keep_vars=True)  # not all buffers are part of the state
    for name, tensor in sorted(tensors.items()):
        h.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        raw = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
        h.update(memoryview(raw.numpy()))
    return digest(h.digest(), "\n".join(_adapters(model)).encode())


def tokenizer_digest(tokenizer: Any) -> str:
    """The whole tokenizer: vocabulary and rules, special tokens, chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else json.dumps(sorted(tokenizer.get_vocab().items()))
    special = json.dumps(tokenizer.special_tokens_map, sort_keys=True, default=str)
    template = json.dumps(getattr(tokenizer, "chat_template", None), sort_keys=True, default=str)
    flags = [getattr(tokenizer, name, None) for name in ("add_bos_token", "add_eos_token")]
    return digest(rules.encode(), special.encode(), template.encode(), repr(flags).encode())


def weights_folder(ref: str) -> Path | None:
    """The folder of a local model, or of a hub id's files in the Hugging Face cache."""
    if Path(ref).is_dir():
        return Path(ref)
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(ref, local_files_only=True))
    except Exception:  # whatever the hub's library says, the tensors themselves can still be hashed
        return None


def weight_files(folder: Path) -> list[Path]:
    """The files that Transformers loads from a folder: one kind of weights, and adapters."""
    names = sorted(p for p in folder.iterdir() if p.is_file())
    adapters = [p for p in names if p.name.startswith("adapter_")]
    for suffix in WEIGHT_SUFFIXES:
        found = [p for p in names if p.suffix == suffix and p not in adapters]
        if found:
            return found + adapters
    return adapters


def file_sha256(path: Path) -> str:
    h = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK_BYTES):
            h.update(block)
    return h.hexdigest()


def _adapters(model: Any) -> Iterable[str]:
    """Adapters and hooks of all modules, by name."""
    for name, module in model.named_modules():
        if switches := _switches(module):
            yield f"{name} {switches}"


def _switches(module: Any) -> tuple[object, ...]:
    """A module's adapters (PEFT) with their switches and scales, and its hooks: they change what a pass computes, not
    the tensors.

    A hook is known by its handle's number, which a process gives once: what it computes can't be hashed. Those of
    Transformers itself only listen.
    """
    found: tuple[object, ...] = ()
    if _may_have_adapters(module):
        active = getattr(module, "active_adapters", None)
        if isinstance(active, (list, str)):
            states = [getattr(module, key, None) for key in ("disable_adapters", "merged", "scaling")]
            found = (f"{active} {states}",)
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        if hooks:
            ours = [n for n, hook in hooks.items() if not str(getattr(hook, "__module__", "")).startswith(LISTENERS)]
            found += (f"hooks {ours}",) if ours else ()
    return found


def _may_have_adapters(module: Any) -> bool:
    return "active_adapters" in module.__dict__ or hasattr(type(module), "active_adapters")
