"""The conversion on a GGUF file of two layers that is written here, and on the embedded model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachestack.errors import MissingExtra, ModelCorrupt
from cachestack.models.catalogue import SMOLLM2_135M_INSTRUCT, Conversion, KnownModel
from cachestack.models.manifest import report_nothing

np = pytest.importorskip("numpy")
gguf = pytest.importorskip("gguf", reason="needs the extra 'local'")
pytest.importorskip("transformers", reason="needs the extra 'local'")
pytest.importorskip("accelerate", reason="needs the extra 'local'")

HIDDEN, HEADS, LAYERS, INNER = 64, 2, 2, 96
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {byte: chr(byte) for byte in printable}
    for number, byte in enumerate(byte for byte in range(256) if byte not in symbols):
        symbols[byte] = chr(256 + number)
    return [symbols[byte] for byte in range(256)]


def write_gguf(path: Path, *, pre: str = "smollm", eos: int = 2, template: str = TEMPLATE) -> None:
    random = np.random.default_rng(7)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*special, *byte_symbols(), "ĠĠ"]
    tokens += [f"<spare{number}>" for number in range(-len(tokens) % 32)]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(eos)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(template)

    def add(name: str, rows: int, columns: int) -> None:
        kind = gguf.GGMLQuantizationType.Q4_1
        weight = random.standard_normal((rows, columns), dtype=np.float32)
        writer.add_tensor(name, gguf.quants.quantize(weight, kind), raw_dtype=kind)

    def add_norm(name: str) -> None:
        writer.add_tensor(name, random.standard_normal(HIDDEN, dtype=np.float32))

    add("token_embd.weight", len(tokens), HIDDEN)
    add_norm("output_norm.weight")
    for layer in range(LAYERS):
        add_norm(f"blk.{layer}.attn_norm.weight")
        add_norm(f"blk.{layer}.ffn_norm.weight")
        add(f"blk.{layer}.attn_q.weight", HIDDEN, HIDDEN)
        add(f"blk.{layer}.attn_k.weight", HIDDEN // HEADS, HIDDEN)
        add(f"blk.{layer}.attn_v.weight", HIDDEN // HEADS, HIDDEN)
        add(f"blk.{layer}.attn_output.weight", HIDDEN, HIDDEN)
        add(f"blk.{layer}.ffn_gate.weight", INNER, HIDDEN)
        add(f"blk.{layer}.ffn_up.weight", INNER, HIDDEN)
        add(f"blk.{layer}.ffn_down.weight", HIDDEN, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def dequantised(path: Path) -> dict[str, Any]:
    """The reference: the values as the gguf library itself reads them."""
    tensors = gguf.GGUFReader(path).tensors
    return {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in tensors}


def unpermuted(weight: Any, num_heads: int) -> Any:
    """GGUF interleaves the halves of each head's rotary dimensions; Transformers keeps them apart."""
    rows = weight.shape[0] // num_heads // 2
    return weight.reshape(num_heads, rows, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def model_of(gguf_file: str, eos_token: str = "<|im_end|>", template_mark: str = "<|im_start|>") -> KnownModel:
    from dataclasses import replace

    return replace(
        SMOLLM2_135M_INSTRUCT, name="tiny", conversion=Conversion(gguf_file, eos_token, template_mark, size_bytes=10**6)
    )


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    return source, target


def convert(model: KnownModel, folders: tuple[Path, Path], report: Any = report_nothing) -> dict[str, str]:
    from cachestack.engines.transformers.convert import convert_gguf

    return convert_gguf(model, *folders, report)


def test_every_value_comes_through_exactly(folders: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    from safetensors.numpy import load_file

    source, target = folders
    write_gguf(source / "tiny.gguf")
    stages: list[tuple[str, int, int]] = []
    versions = convert(model_of("tiny.gguf"), folders, lambda *stage: stages.append(stage))
    expected, got = dequantised(source / "tiny.gguf"), load_file(target / "model.safetensors")
    pairs = {
        "token_embd": "embed_tokens",
        "output_norm": "norm",
        "blk.1.attn_norm": "layers.1.input_layernorm",
        "blk.1.ffn_norm": "layers.1.post_attention_layernorm",
        "blk.1.attn_v": "layers.1.self_attn.v_proj",
        "blk.1.attn_output": "layers.1.self_attn.o_proj",
        "blk.1.ffn_gate": "layers.1.mlp.gate_proj",
        "blk.1.ffn_up": "layers.1.mlp.up_proj",
        "blk.0.ffn_down": "layers.0.mlp.down_proj",
    }
    for before, after in pairs.items():
        np.testing.assert_array_equal(got[f"model.{after}.weight"], expected[f"{before}.weight"], err_msg=before)
    for before, after, heads in (("attn_q", "q_proj", HEADS), ("attn_k", "k_proj", 1)):
        weight = unpermuted(expected[f"blk.0.{before}.weight"], heads)
        np.testing.assert_array_equal(got[f"model.layers.0.self_attn.{after}.weight"], weight, err_msg=before)
    assert {value.dtype for value in got.values()} == {np.dtype("float32")}
    assert versions["dtype"] == "float32"
    assert set(versions) >= {"torch", "transformers", "gguf"}
    assert stages[0] == ("converting", 0, 100)
    assert stages[-1] == ("converting", 100, 100)
    assert [done for _, done, _ in stages] == sorted(done for _, done, _ in stages)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "it/s" not in printed.err  # no bar but ours


def test_the_result_is_a_plain_model_with_its_template(folders: tuple[Path, Path]) -> None:
    from transformers import AutoTokenizer

    write_gguf(folders[0] / "tiny.gguf")
    convert(model_of("tiny.gguf"), folders)
    config = json.loads((folders[1] / "config.json").read_text())
    assert "quantization_config" not in config
    assert (config["dtype"], config["eos_token_id"], config["max_position_embeddings"]) == ("float32", 2, 128)
    tokenizer = AutoTokenizer.from_pretrained(folders[1])
    assert (tokenizer.eos_token, tokenizer.model_max_length) == ("<|im_end|>", 128)
    encoded: Any = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], return_dict=True)
    ids = encoded["input_ids"]
    assert tokenizer.decode(ids) == "<|im_start|>user\nHi<|im_end|>\n"
    assert ids[0] == 1
    assert ids.count(2) == 1


@pytest.mark.parametrize(("pre", "pieces"), [("smollm", ["ĠĠ", "5"]), ("gpt-2", ["Ġ", "Ġ", "5"])])
def test_digits_are_cut_out_first_where_the_file_says_so(
    folders: tuple[Path, Path], pre: str, pieces: list[str]
) -> None:
    from transformers import AutoTokenizer

    write_gguf(folders[0] / "tiny.gguf", pre=pre)
    convert(model_of("tiny.gguf"), folders)
    assert AutoTokenizer.from_pretrained(folders[1]).tokenize("  5") == pieces


def test_another_end_of_turn_is_refused(folders: tuple[Path, Path]) -> None:
    write_gguf(folders[0] / "tiny.gguf", eos=0)
    with pytest.raises(ModelCorrupt, match=r"'<\|endoftext\|>', not '<\|im_end\|>'"):
        convert(model_of("tiny.gguf"), folders)


def test_another_chat_template_is_refused(folders: tuple[Path, Path]) -> None:
    write_gguf(folders[0] / "tiny.gguf", template="{% for m in messages %}{{ m['content'] }}{% endfor %}")
    with pytest.raises(ModelCorrupt, match=r"chat template lacks '<\|im_start\|>'"):
        convert(model_of("tiny.gguf"), folders)


def test_a_missing_library_names_the_extra(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gguf" else find_spec(name))
    with pytest.raises(MissingExtra, match=r"gguf is not installed.*cachestack\[local\]"):
        convert(model_of("tiny.gguf"), folders)


def test_the_embedded_model_has_the_tokens_it_was_trained_with(llm_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(llm_path)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
    )
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.model_max_length) == (1, 2, 8192)
    assert tokenizer.tokenize("due  2024-05") == ["due", "ĠĠ", "2", "0", "2", "4", "-", "0", "5"]
    text = tokenizer.apply_chat_template(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Été?"}],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nÉté?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_embedded_model_keeps_float32(llm_path: Path) -> None:
    from safetensors import safe_open

    with safe_open(llm_path / "model.safetensors", "np") as weights:
        sizes = [np.prod(weights.get_slice(name).get_shape()) for name in weights.keys()]  # noqa: SIM118 (no mapping)
        kinds = {weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
    assert sum(sizes) == SMOLLM2_135M_INSTRUCT.num_parameters
    assert kinds == {"F32"}
