"""Where a model name leads, and what is said when it leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cachestack.errors import ModelCorrupt, ModelError, ModelNotFound
from cachestack.models.catalogue import KnownModel, ModelKind
from cachestack.models.pull import pull
from cachestack.models.resolve import resolve

OFFLINE = {"HF_HUB_OFFLINE": "1"}


def ask(name: str, kind: str, folder: Path, *known: KnownModel, environ: dict[str, str] | None = None) -> str:
    return resolve(name, kind, folder=folder, catalogue=known, environ=OFFLINE if environ is None else environ)


def never(*_: object) -> dict[str, str]:
    raise AssertionError("nothing is to be converted")


@pytest.mark.parametrize("name", ["tiny", "TINY", "org/Tiny"])
def test_a_pulled_model_is_found_by_name_and_alias(tiny: KnownModel, tmp_path: Path, name: str) -> None:
    pull(tiny, tmp_path, convert=never)
    assert ask(name, "encoder", tmp_path, tiny) == str(tmp_path / "tiny")


def test_a_model_of_the_other_kind_is_refused(tiny: KnownModel, tmp_path: Path) -> None:
    pull(tiny, tmp_path, convert=never)
    with pytest.raises(ModelError, match="'tiny' is an encoder; a language model is needed here"):
        ask("tiny", ModelKind.LLM, tmp_path, tiny)


@pytest.mark.parametrize("name", ["tiny", "org/Tiny"])
def test_a_known_model_that_is_not_here_says_how_to_get_it(tiny: KnownModel, tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelNotFound, match="`cachestack models pull tiny`"):
        ask(name, "encoder", tmp_path, tiny)


def test_an_unconverted_model_says_what_is_left_to_do(tiny_gguf: KnownModel, tmp_path: Path) -> None:
    from cachestack.errors import MissingExtra

    def without_extra(*_: object) -> dict[str, str]:
        raise MissingExtra("torch", "local")

    pull(tiny_gguf, tmp_path, convert=without_extra)
    with pytest.raises(ModelNotFound, match="not converted yet; `cachestack models pull tiny`"):
        ask("tiny", "llm", tmp_path, tiny_gguf)


def test_a_damaged_model_says_how_to_mend_it(tiny: KnownModel, tmp_path: Path) -> None:
    pull(tiny, tmp_path, convert=never)
    (tmp_path / "tiny/weights/model.bin").unlink()
    with pytest.raises(ModelCorrupt, match="`cachestack models pull tiny`"):
        ask("tiny", "encoder", tmp_path, tiny)


def test_a_model_put_there_by_hand_is_taken_as_it_is(tiny: KnownModel, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/config.json").write_text("{}")
    assert ask("tiny", "encoder", tmp_path, tiny) == str(tmp_path / "tiny")


def test_a_local_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "my model"
    mine.mkdir()
    (mine / "config.json").write_text("{}")
    assert ask(str(mine), "llm", tmp_path / "none") == str(mine)
    monkeypatch.chdir(tmp_path)
    assert ask("./my model", "llm", tmp_path / "none") == str(mine)
    assert ask("my model", "llm", tmp_path / "none") == str(mine)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ask("~/my model", "llm", tmp_path / "none") == str(mine)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        ask(str(tmp_path), "llm", tmp_path / "none")


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "~/nothing at all", "a/b/c", "", "two words"])
def test_what_can_only_be_a_path_is_not_asked_of_the_hub(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelNotFound, match="there is no model folder"):
        ask(name, "llm", tmp_path, environ={})


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_and_not_cached_says_what_to_do(tmp_path: Path, variable: str) -> None:
    with pytest.raises(ModelNotFound) as raised:
        ask("nobody/no-such-model", "llm", tmp_path, environ={variable: "1"})
    message = str(raised.value)
    assert f"not in the Hugging Face cache, and {variable} is set" in message
    assert "`cachestack models pull smollm2-135m-instruct` and use smollm2-135m-instruct" in message
    assert "path of a model folder" in message
    assert f"unset {variable}" in message


# Hugging Face's library reads its settings once, when it is imported: these run in processes of their own.
ASK = "from cachestack.models.resolve import resolve; print(resolve('nobody/small', 'encoder'))"


def ask_apart(tmp_path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    settings = {"CACHESTACK_MODELS": str(tmp_path / "models"), "HF_HOME": str(tmp_path / "hf"), **environ}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    return subprocess.run([sys.executable, "-c", ASK], env=inherited | settings, capture_output=True, text=True)


def test_a_cached_hub_model_is_used_offline(tmp_path: Path) -> None:
    commit = "0" * 40
    cached = tmp_path / "hf/hub/models--nobody--small"
    (cached / "snapshots" / commit).mkdir(parents=True)
    (cached / "snapshots" / commit / "config.json").write_text("{}")
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text(commit)
    done = ask_apart(tmp_path, HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stdout) == (0, "nobody/small\n"), done.stderr


def test_a_hub_that_cannot_be_reached_says_what_to_do(tmp_path: Path) -> None:
    done = ask_apart(tmp_path, HF_ENDPOINT="http://127.0.0.1:9", NO_PROXY="127.0.0.1")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "cachestack.errors.ModelNotFound: 'nobody/small' could not be had from the Hugging Face hub" in last
    assert "`cachestack models pull all-minilm-l6-v2`" in last
