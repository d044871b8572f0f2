"""Opening a model: device and dtype, errors that say what to do, once for all threads, nothing before it is needed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cachestack.engines.base import is_token_engine
from cachestack.engines.transformers.engine import TransformersEngine, end_tokens
from cachestack.engines.transformers.load import Once, choose_device, choose_dtype, load
from cachestack.errors import ConfigError, ModelError, ModelNotFound
from cachestack.requests import Request, as_messages


def test_making_an_engine_imports_and_opens_nothing() -> None:
    program = (
        "import sys\n"
        "from cachestack.engines.transformers.engine import TransformersEngine\n"
        "engine = TransformersEngine('no-such-model')\n"
        "assert engine.model == 'no-such-model' and engine.name == 'local'\n"
        "print([m for m in ('torch', 'transformers', 'tokenizers', 'jinja2') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_is_a_token_engine(local_engine: TransformersEngine) -> None:
    assert is_token_engine(local_engine)
    assert local_engine.name == "local"
    assert local_engine.unsupported_cache is None


def test_the_dtype_is_what_the_device_is_good_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_dtype("cpu") == "float32"
    assert choose_dtype("mps") == "float32"
    for supported, expected in ((True, "bfloat16"), (False, "float16")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, s=supported: s)
        assert choose_dtype("cuda:0") == expected
    assert choose_dtype("cpu", "bfloat16") == "bfloat16"
    assert choose_dtype("cuda", "float16") == "float16"


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "int8"), ("cuda", "float64")])
def test_an_unknown_dtype_names_the_allowed_ones(device: str, dtype: str) -> None:
    with pytest.raises(ConfigError, match=f"'{dtype}' is not known; allowed: float32, bfloat16, float16"):
        choose_dtype(device, dtype)


def test_float16_on_the_cpu_is_refused() -> None:
    with pytest.raises(ConfigError, match="use float32 or bfloat16"):
        choose_dtype("cpu", "float16")


def test_the_best_device_is_taken_or_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device() == "cpu"
    with pytest.raises(ConfigError, match="device 'cuda' is not usable here; usable: cpu"):
        choose_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device() == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device() == "cuda"
    assert choose_device("cuda:1") == "cuda:1"
    assert choose_device("cpu") == "cpu"


def test_a_model_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        load(str(tmp_path / "nowhere"))


def test_a_folder_without_weights_says_so(tmp_path: Path, byte_tokenizer: Any, make_model: Callable[..., Any]) -> None:
    byte_tokenizer.save_pretrained(tmp_path)
    make_model("llama").config.save_pretrained(tmp_path)
    with pytest.raises(ModelNotFound, match="cannot be opened"):
        load(str(tmp_path))


def test_a_model_of_an_unknown_kind_says_so(tmp_path: Path, byte_tokenizer: Any) -> None:
    byte_tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "no-such-kind"}')
    with pytest.raises(ModelError, match="no-such-kind"):
        load(str(tmp_path))


def test_what_is_set_is_what_is_loaded(tmp_path: Path, byte_tokenizer: Any, make_model: Callable[..., Any]) -> None:
    byte_tokenizer.save_pretrained(tmp_path)
    make_model("llama").save_pretrained(tmp_path)
    loaded = load(str(tmp_path), device="cpu", dtype="bfloat16")
    assert loaded.dtype == "bfloat16"
    assert loaded.device == torch.device("cpu")
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())


def test_many_threads_open_a_model_once() -> None:
    opened: list[object] = []

    def make() -> object:
        opened.append(object())
        return opened[-1]

    once = Once(make)
    start = threading.Barrier(8)
    got: list[object] = []

    def ask() -> None:
        start.wait()
        got.append(once.get())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1
    assert len(set(map(id, got))) == 1


def test_a_failure_to_open_is_tried_again() -> None:
    failures = [ModelNotFound("not yet")]

    def make() -> str:
        if failures:
            raise failures.pop()
        return "model"

    once = Once(make)
    with pytest.raises(ModelNotFound):
        once.get()
    assert once.get() == "model"


def test_an_answer_ends_at_any_of_the_end_tokens(make_model: Callable[..., Any], byte_tokenizer: Any) -> None:
    model = make_model("llama")
    assert end_tokens(model, byte_tokenizer) == {1}
    model.generation_config.eos_token_id = [5, 9]
    assert end_tokens(model, byte_tokenizer) == {1, 5, 9}
    model.generation_config.eos_token_id = None
    byte_tokenizer.eos_token, before = None, byte_tokenizer.eos_token
    assert end_tokens(model, byte_tokenizer) == frozenset()
    byte_tokenizer.eos_token = before


def test_many_threads_tokenise_with_a_tokenizer_that_was_saved_with_truncation(
    make_byte_tokenizer: Callable[..., Any], make_engine: Callable[..., TransformersEngine]
) -> None:
    tokenizer = make_byte_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=300)
    engine = make_engine(tokenizer=tokenizer)
    start = threading.Barrier(8)
    lengths: list[int] = []

    def work() -> None:
        start.wait()
        lengths.extend(len(engine.prepare(Request(as_messages("How do I reset my password?"))).ids) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lengths) == 160
    assert len(set(lengths)) == 1
    assert 4 < lengths[0] < 300
