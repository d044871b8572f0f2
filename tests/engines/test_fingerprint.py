"""What must differ when KV may not be reused, and what must not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cachestack.engines.transformers import fingerprint
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.fingerprint import FileDigests, Stamp, file_sha256, tensors_digest
from cachestack.engines.transformers.load import GQA_VARIABLE
from cachestack.requests import Message, Request, Sampling

Make = Callable[..., Any]


@pytest.fixture
def engine_of(byte_tokenizer: Any) -> Callable[[Any], TransformersEngine]:
    return lambda model: TransformersEngine.from_parts(model, byte_tokenizer, digests_path=lambda: None)


def test_equal_models_have_equal_fingerprints_under_any_name(
    make_model: Make, engine_of: Make, byte_tokenizer: Any
) -> None:
    first = engine_of(make_model("llama"))
    second = TransformersEngine.from_parts(make_model("llama"), byte_tokenizer, name="other")
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint == first.fingerprint


def test_anything_that_changes_kv_changes_the_fingerprint(
    make_model: Make, engine_of: Make, make_byte_tokenizer: Make
) -> None:
    seen = {engine_of(make_model("llama")).fingerprint}
    variants = [
        engine_of(make_model("llama").to(torch.bfloat16)),
        engine_of(make_model("llama", attn_implementation="eager")),
        engine_of(make_model("llama", rms_norm_eps=1e-3)),
        engine_of(make_model("llama", rope_parameters={"rope_type": "default", "rope_theta": 5000.0})),
        engine_of(make_model("qwen2")),
        TransformersEngine.from_parts(make_model("llama"), make_byte_tokenizer(template="{{ 1 }}")),
        TransformersEngine.from_parts(make_model("llama"), make_byte_tokenizer(adds_bos=True)),
    ]
    for engine in variants:
        seen.add(engine.fingerprint)
    assert len(seen) == 1 + len(variants)


def test_bf16_and_fp16_of_the_same_weights_never_mix(make_model: Make, engine_of: Make) -> None:
    kinds = [engine_of(make_model("llama").to(d)).fingerprint for d in (torch.float32, torch.bfloat16, torch.float16)]
    assert len(set(kinds)) == 3


def test_a_weight_written_to_in_place_is_noticed(make_model: Make, engine_of: Make) -> None:
    """As when an adapter is merged, or loaded again under the same name."""
    engine = engine_of(make_model("llama"))
    before = engine.fingerprint
    weight = engine.loaded.model.model.layers[0].self_attn.k_proj.weight
    original = weight.detach().clone()
    with torch.no_grad():
        weight[0, 0] += 1
    assert engine.fingerprint != before
    with torch.no_grad():
        weight.copy_(original)
    assert engine.fingerprint == before


def test_an_adapter_that_is_added_switched_and_taken_off_is_noticed(make_model: Make, engine_of: Make) -> None:
    class Adapted(torch.nn.Linear):
        """What PEFT's layers look like from outside: extra weights, a choice among them, a switch."""

        active_adapters: list[str]
        disable_adapters: bool = False

    engine = engine_of(make_model("llama"))
    seen = [engine.fingerprint]
    attention = engine.loaded.model.model.layers[1].self_attn
    plain = attention.v_proj
    adapted = Adapted(plain.in_features, plain.out_features, bias=False)
    adapted.weight, adapted.active_adapters = plain.weight, ["one"]
    attention.v_proj = adapted
    seen.append(engine.fingerprint)
    adapted.active_adapters = ["two"]
    seen.append(engine.fingerprint)
    adapted.disable_adapters = True
    seen.append(engine.fingerprint)
    adapted.disable_adapters, adapted.scaling = False, {"two": 1.0}
    seen.append(engine.fingerprint)
    adapted.scaling["two"] = 0.5
    seen.append(engine.fingerprint)
    assert len(set(seen)) == 6
    attention.v_proj = plain
    assert engine.fingerprint == seen[0]


def test_a_hook_that_changes_what_a_layer_gives_is_noticed(make_model: Make, engine_of: Make) -> None:
    """As activation steering does it. What is put in its place later is another one, though it looks the same."""
    engine = engine_of(make_model("llama"))
    layer = engine.loaded.model.model.layers[0].mlp
    seen = [engine.fingerprint]
    for register in (layer.register_forward_hook, layer.register_forward_hook, layer.register_forward_pre_hook):
        handle = register(lambda *arguments: None)
        seen.append(engine.fingerprint)
        handle.remove()
        assert engine.fingerprint == seen[0]
    assert len(set(seen)) == 4


@pytest.mark.parametrize("at", ["start", "middle"])
def test_kv_of_a_run_during_which_the_model_was_changed_belongs_to_no_model(
    make_model: Make, engine_of: Make, at: str
) -> None:
    """An adapter that is switched while a stream is under way: its KV is of both, and must be found under neither."""
    engine = engine_of(make_model("llama"))
    request = Request((Message("system", "Be brief."), Message("user", "Hi")), sampling=Sampling(max_new_tokens=4))
    prompt = engine.prepare(request)
    before = engine.fingerprint

    def run(change: bool) -> Any:
        stream = engine.stream_tokens(request, prompt, (), (prompt.boundaries[0].position, len(prompt.ids)))
        weight = engine.loaded.model.model.layers[0].self_attn.k_proj.weight
        try:
            if at == "middle":
                next(stream)
            if change:
                with torch.no_grad():
                    weight[0, 0] += 1
            while True:
                next(stream)
        except StopIteration as end:
            return end.value

    assert run(change=False).fingerprint == before
    changed = run(change=True)
    assert changed.fingerprint == (engine.fingerprint if at == "start" else "")
    assert changed.fingerprint != before


def test_the_way_attention_is_grouped_counts(
    make_model: Make, engine_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(make_model("llama"))
    monkeypatch.setenv(GQA_VARIABLE, "1")
    grouped = engine.fingerprint
    monkeypatch.setenv(GQA_VARIABLE, "0")
    assert engine.fingerprint != grouped


def test_other_library_versions_change_it(make_model: Make, engine_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = engine_of(make_model("llama")).fingerprint
    monkeypatch.setattr("importlib.metadata.version", lambda name: "99")
    assert engine_of(make_model("llama")).fingerprint != ours


def test_tensors_are_hashed_to_the_last_byte(make_model: Make) -> None:
    one, other = make_model("llama"), make_model("llama")
    assert tensors_digest(one) == tensors_digest(other)
    with torch.no_grad():
        other.lm_head.weight[-1, -1] = torch.nextafter(other.lm_head.weight[-1, -1], torch.tensor(9.0))
    assert tensors_digest(one) != tensors_digest(other)
    assert tensors_digest(one.to(torch.bfloat16))


def test_the_stamp_needs_no_tensor_read(make_model: Make) -> None:
    with torch.inference_mode():
        model = make_model("llama")  # such tensors count no writes
    assert Stamp(model).holds(model)


def test_a_weight_that_is_replaced_twice_is_noticed_also_where_memory_is_given_again(
    make_model: Make, engine_of: Make
) -> None:
    """The second stands where the first stood, with as many writes: none. It is another tensor all the same."""
    model = make_model("llama", hidden_size=64)
    engine, layer = engine_of(model), model.model.layers[0].mlp.up_proj
    seen = {engine.fingerprint}
    for scale in range(2, 12):
        for factor in (0.5, scale):
            layer.weight = torch.nn.Parameter(torch.ones_like(layer.weight) * factor)
        seen.add(engine.fingerprint)
    assert len(seen) == 11


def test_a_buffer_that_is_written_to_is_noticed(make_model: Make, engine_of: Make) -> None:
    model = make_model("llama")
    engine = engine_of(model)
    before = engine.fingerprint
    model.model.rotary_emb.inv_freq.mul_(1.5)
    assert engine.fingerprint != before


# --- files


@pytest.fixture
def saved(tmp_path: Path, make_model: Make, byte_tokenizer: Any) -> Path:
    folder = tmp_path / "model"
    make_model("llama").save_pretrained(folder)
    byte_tokenizer.save_pretrained(folder)
    return folder


def open_engine(folder: Path, memory: Path | None) -> TransformersEngine:
    return TransformersEngine(str(folder), digests_path=lambda: memory)


def test_a_model_from_files_is_known_by_their_digest(saved: Path, tmp_path: Path) -> None:
    memory = tmp_path / "state" / "digests.json"
    first = open_engine(saved, memory).fingerprint
    remembered = json.loads(memory.read_text())
    (path,) = remembered
    assert path.endswith("model.safetensors")
    assert remembered[path][2] == file_sha256(saved / "model.safetensors")
    assert open_engine(saved, memory).fingerprint == first
    assert open_engine(saved, None).fingerprint == first


def test_a_file_is_hashed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, memory = tmp_path / "w.safetensors", tmp_path / "digests.json"
    file.write_bytes(b"one")
    hashed: list[Path] = []

    def counted(path: Path) -> str:
        hashed.append(path)
        return file_sha256(path)

    monkeypatch.setattr(fingerprint, "file_sha256", counted)
    digests = FileDigests(lambda: memory)
    one = digests.of(file)
    assert digests.of(file) == FileDigests(lambda: memory).of(file) == one
    assert len(hashed) == 1
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 10**18))
    assert FileDigests(lambda: memory).of(file) != one
    assert len(hashed) == 2


@pytest.mark.parametrize("content", [None, "", "[]", "{", '{"x": 3}', '{"x": [1, 2]}', "null"])
def test_a_broken_memory_of_digests_only_costs_time(tmp_path: Path, content: str | None) -> None:
    file, memory = tmp_path / "w.safetensors", tmp_path / "digests.json"
    file.write_bytes(b"weights")
    if content is not None:
        memory.write_text(content)
    assert FileDigests(lambda: memory).of(file) == file_sha256(file)


def test_a_memory_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a folder should be")
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"weights")
    digests = FileDigests(lambda: tmp_path / "taken" / "digests.json")
    assert digests.of(file) == digests.of(file) == file_sha256(file)


def test_other_weights_under_the_same_path_have_another_fingerprint(saved: Path, make_model: Make) -> None:
    first = open_engine(saved, None).fingerprint
    changed = make_model("llama")
    with torch.no_grad():
        changed.lm_head.weight[0, 0] += 1
    changed.save_pretrained(saved)
    assert open_engine(saved, None).fingerprint != first


def test_files_that_are_replaced_under_an_open_model_do_not_lend_it_their_digest(saved: Path, make_model: Make) -> None:
    engine = open_engine(saved, None)
    engine.loaded  # noqa: B018 - opens it
    changed = make_model("llama")
    with torch.no_grad():
        changed.lm_head.weight[0, 0] += 1
    changed.save_pretrained(saved)
    new = open_engine(saved, None)
    assert engine.fingerprint != new.fingerprint


def test_a_loaded_model_that_is_changed_goes_by_its_tensors(saved: Path) -> None:
    engine = open_engine(saved, None)
    before = engine.fingerprint
    with torch.no_grad():
        engine.loaded.model.lm_head.weight[0, 0] += 1
    assert engine.fingerprint != before


def test_the_same_files_in_another_dtype_have_another_fingerprint(saved: Path) -> None:
    engines = [TransformersEngine(str(saved), dtype=d, digests_path=lambda: None) for d in ("float32", "bfloat16")]
    assert len({engine.fingerprint for engine in engines}) == 2
