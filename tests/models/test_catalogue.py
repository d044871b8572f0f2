"""Names and aliases, and that the catalogue is whole."""

from __future__ import annotations

import string

import pytest

from cachestack.errors import ModelNotFound
from cachestack.models.catalogue import (
    ALL_MINILM_L6_V2,
    CATALOGUE,
    DEFAULT_ENCODER,
    DEFAULT_LLM,
    SMOLLM2_135M_INSTRUCT,
    KnownModel,
    find_known,
    get_known,
)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (DEFAULT_LLM, SMOLLM2_135M_INSTRUCT),
        ("SmolLM2-135M-Instruct", SMOLLM2_135M_INSTRUCT),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", SMOLLM2_135M_INSTRUCT),
        (DEFAULT_ENCODER, ALL_MINILM_L6_V2),
        ("all-MiniLM-L6-v2", ALL_MINILM_L6_V2),
        ("sentence-transformers/all-MiniLM-L6-v2", ALL_MINILM_L6_V2),
        ("HuggingFaceTB/SmolLM2-360M-Instruct", None),
        ("", None),
    ],
)
def test_names_and_aliases(name: str, model: KnownModel | None) -> None:
    assert find_known(name) is model


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(ModelNotFound, match=rf"'smollm'.*{DEFAULT_LLM}, {DEFAULT_ENCODER}"):
        get_known("smollm")


def test_no_two_models_answer_to_one_name() -> None:
    names = [name for model in CATALOGUE for name in {known.casefold() for known in (model.name, *model.aliases)}]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("model", CATALOGUE, ids=lambda model: model.name)
def test_paths_stay_in_the_folder_and_digests_are_digests(model: KnownModel) -> None:
    for file in model.files:
        parts = file.path.split("/")
        assert all(part not in ("", ".", "..") for part in parts)
        assert "\\" not in file.path
    for digest in (model.wheel.sha256, *(file.sha256 for file in model.files)):
        assert len(digest) == 64
        assert set(digest) <= set(string.hexdigits.lower())
    if model.conversion is not None:
        assert model.conversion.gguf_file in [file.path for file in model.files]
