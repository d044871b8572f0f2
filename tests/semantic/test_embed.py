"""The encoder: real MiniLM, and tiny models made on the spot where other weights or other settings are needed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from cachestack.errors import EncoderError, ModelNotFound
from cachestack.semantic.embed import NO_WINDOW, SentenceEncoder

QUESTION = "How do I reset my password?"
MakeTiny = Callable[..., Path]


@pytest.fixture(scope="module")
def encoder(encoder_path: Path) -> SentenceEncoder:
    return SentenceEncoder(str(encoder_path))


@pytest.fixture
def make_tiny(encoder_path: Path, tmp_path: Path) -> MakeTiny:
    """A sentence-transformers model of a few kilobytes with MiniLM's tokenizer and random weights."""

    def make(name="tiny", *, dimension=32, seed=0, poison=False, window=256, prompts=None, keep_tokenizer=True) -> Path:
        import torch
        from transformers import BertConfig, BertModel

        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=30522,
            hidden_size=dimension,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=2 * dimension,
        )
        model = BertModel(config)
        if poison:
            with torch.no_grad():
                model.encoder.layer[0].output.dense.bias[0] = float("nan")
        folder = tmp_path / name
        model.save_pretrained(folder)
        for file in ("modules.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
            shutil.copy(encoder_path / file, folder / file)
        if keep_tokenizer:
            shutil.copy(encoder_path / "tokenizer.json", folder / "tokenizer.json")
        pooling = json.loads((encoder_path / "1_Pooling/config.json").read_text())
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps(pooling | {"word_embedding_dimension": dimension}))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": window}))
        if prompts:
            (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
        return folder

    return make


# vectors


def test_vectors_are_those_of_sentence_transformers_in_the_order_of_the_texts(encoder, encoder_path):
    from sentence_transformers import SentenceTransformer

    texts = [QUESTION, "no", "Où est ma commande ?", "a longer question about my parcel " * 3, QUESTION]
    ours = encoder.encode(texts)
    theirs = SentenceTransformer(str(encoder_path)).encode(texts, normalize_embeddings=True)
    assert ours.dtype == np.float32
    assert ours.shape == (5, encoder.dimension) == (5, 384)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(ours[0], encoder.encode([QUESTION])[0], atol=1e-5)


def test_batches_do_not_change_the_order(encoder_path):
    encoder = SentenceEncoder(str(encoder_path), batch_size=2)
    texts = ["one two three four five six", "one", "one two three", "one two", "one two three four"]
    alone = np.stack([encoder.encode([text])[0] for text in texts])
    np.testing.assert_allclose(encoder.encode(texts), alone, atol=1e-5)


def test_a_paraphrase_is_nearer_than_another_question(encoder):
    asked, same, other = encoder.encode([QUESTION, "How can I change my password?", "What is the capital of Chad?"])
    assert asked @ same > 0.75
    assert asked @ other < 0.3


def test_no_texts_give_no_vectors(encoder):
    assert encoder.encode([]).shape == (0, 384)


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_an_empty_text_is_an_error(encoder, text):
    with pytest.raises(EncoderError, match="text 1 is empty"):
        encoder.encode([QUESTION, text])


def test_values_that_are_not_finite_are_an_error(make_tiny):
    encoder = SentenceEncoder(str(make_tiny(poison=True)))
    with pytest.raises(EncoderError, match="not a finite vector"):
        encoder.encode([QUESTION])


# window


def test_the_window_counts_special_tokens_and_nothing_is_cut_silently(encoder):
    assert encoder.window_tokens == 256
    fitting, long = "word " * 254, "word " * 255
    assert encoder.fits_window(fitting)
    assert not encoder.fits_window(long)
    seen = encoder._model.preprocess([fitting])["input_ids"]
    assert seen.shape[1] == 256
    assert encoder.encode([fitting]).shape == (1, 384)
    with pytest.raises(EncoderError, match=r"text 1 .* longer than the encoder's window of 256 tokens"):
        encoder.encode([QUESTION, long])


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.text(max_size=400))
@example("a" * 247)
@example("a" * 248)
@example("a," * 124)
@example("," * 248)
@example("," * 255)
@example("é" * 254)
@example("漢" * 255)
@example("1\n" * 127)
def test_the_short_way_never_lets_through_what_the_tokenizer_would_cut(encoder, text):
    assert encoder.fits_window(text) == (encoder.count_tokens(text) <= 256)


def test_text_that_cannot_be_tokenised_does_not_fit(encoder):
    assert not encoder.fits_window("a lone \ud800 surrogate")
    with pytest.raises(EncoderError, match="cannot be tokenised"):
        encoder.encode(["a lone \ud800 surrogate"])


def test_a_model_without_a_fast_tokenizer_file_counts_with_its_own(make_tiny):
    encoder = SentenceEncoder(str(make_tiny(window=20, keep_tokenizer=False)))
    assert encoder.window_tokens == 20
    assert encoder.fits_window("word " * 18)
    assert not encoder.fits_window("word " * 19)
    assert encoder.encode(["word"]).shape == (1, 32)


def test_the_models_own_prompt_is_used_and_counted(make_tiny):
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    plain = SentenceEncoder(str(make_tiny("plain", window=20)))
    prompted = SentenceEncoder(str(make_tiny("prompted", window=20, prompts=prompts)))
    np.testing.assert_allclose(prompted.encode(["hello"]), plain.encode(["query: hello"]), atol=1e-6)
    assert plain.fits_window("word " * 18)
    assert prompted.fits_window("word " * 16)
    assert not prompted.fits_window("word " * 17)
    assert prompted.fingerprint != plain.fingerprint


def test_a_window_that_the_files_do_not_state_comes_from_the_model(make_tiny):
    folder = make_tiny()
    (folder / "sentence_bert_config.json").unlink()
    encoder = SentenceEncoder(str(folder))
    assert encoder.window_tokens == 512 < NO_WINDOW


# any sentence-transformers model


def pooled(folder: Path, **modes) -> Path:
    config = folder / "1_Pooling/config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"pooling_mode_mean_tokens": False} | modes))
    return folder


@pytest.mark.parametrize("mode", ["pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_lasttoken"])
@pytest.mark.parametrize("prompted", [False, True])
def test_pooling_and_prompts_are_those_of_the_model(make_tiny, mode, prompted):
    from sentence_transformers import SentenceTransformer

    prompts = {"prompts": {"q": "query: "}, "default_prompt_name": "q"} if prompted else None
    folder = pooled(make_tiny(prompts=prompts), **{mode: True})
    texts = [QUESTION, "no", "  Où est ma  commande ?\n", "word " * 30]
    ours = SentenceEncoder(str(folder)).encode(texts)
    theirs = SentenceTransformer(str(folder)).encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_states_are_without_the_prompt_and_its_spans_do_not_count(make_tiny):
    prompts = {"prompts": {"q": "query: "}, "default_prompt_name": "q"}
    plain, prompted = SentenceEncoder(str(make_tiny("a"))), SentenceEncoder(str(make_tiny("b", prompts=prompts)))
    one, other = (e.encode_with_tokens([QUESTION])[0].tokens for e in (plain, prompted))
    np.testing.assert_array_equal(one.spans, other.spans)
    assert one.states.shape == other.states.shape
    with_prompt = plain.encode_with_tokens(["query: " + QUESTION])[0].tokens
    np.testing.assert_allclose(other.states, with_prompt.states[2:], atol=1e-5)


def test_the_short_way_is_taken_only_where_it_gives_the_same(make_tiny, encoder):
    assert encoder._inputs.is_direct
    odd = make_tiny()
    config = json.loads((odd / "tokenizer_config.json").read_text()) | {"padding_side": "left"}
    (odd / "tokenizer_config.json").write_text(json.dumps(config))
    encoder = SentenceEncoder(str(odd))
    texts = ["one", "one two three four"]
    both = encoder.encode_with_tokens(texts)
    for text, made in zip(texts, both, strict=True):
        alone = encoder.encode_with_tokens([text])[0]
        assert made.tokens.states.shape == alone.tokens.states.shape == (len(text.split()), 32)
    assert not encoder._inputs.is_direct


def test_a_model_without_a_fast_tokenizer_has_no_states(make_tiny):
    made = SentenceEncoder(str(make_tiny(keep_tokenizer=False))).encode_with_tokens(["hello"])[0]
    assert made.tokens is None
    assert made.vector.shape == (32,)


def test_a_dense_layer_behind_the_pooling_decides_the_dimension(make_tiny):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense

    folder = make_tiny()
    model = SentenceTransformer(str(folder))
    SentenceTransformer(modules=[model[0], model[1], Dense(32, 12)]).save(str(folder.parent / "dense"))
    encoder = SentenceEncoder(str(folder.parent / "dense"))
    made = encoder.encode_with_tokens([QUESTION])[0]
    assert made.vector.shape == (12,) == (encoder.dimension,)
    assert made.tokens.states.shape == (7, 32)
    assert encoder.fingerprint != SentenceEncoder(str(folder)).fingerprint


# what it is


def test_names_and_languages(encoder, make_tiny):
    by_name = SentenceEncoder("sentence-transformers/all-MiniLM-L6-v2")
    assert by_name.name == "all-minilm-l6-v2"
    assert by_name.languages == {"en"}
    assert encoder.languages == {"en"}, "known by its weights"
    tiny = make_tiny()
    assert SentenceEncoder(str(tiny)).languages == frozenset()
    assert SentenceEncoder(str(tiny)).name == str(tiny)
    assert SentenceEncoder("intfloat/multilingual-e5-small").languages == frozenset()


def test_the_fingerprint_is_that_of_the_files(encoder, encoder_path, models_dir):
    assert len(encoder.fingerprint) == 64
    assert SentenceEncoder(str(encoder_path)).fingerprint == encoder.fingerprint
    assert SentenceEncoder("all-minilm-l6-v2", models=models_dir).fingerprint == encoder.fingerprint


def test_the_fingerprint_changes_with_whatever_changes_the_vectors(make_tiny):
    folder = make_tiny()

    def fingerprint():
        return SentenceEncoder(str(folder)).fingerprint

    seen = [fingerprint()]
    (folder / "README.md").write_text("other words")
    (folder / "cachestack.json").write_text("{}")
    assert fingerprint() == seen[0]
    pooling = folder / "1_Pooling/config.json"
    pooling.write_text(pooling.read_text().replace('"pooling_mode_cls_token": false', '"pooling_mode_cls_token": true'))
    seen.append(fingerprint())
    (folder / "config_sentence_transformers.json").write_text('{"default_prompt_name": "q", "prompts": {"q": "q: "}}')
    seen.append(fingerprint())
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + " ")
    seen.append(fingerprint())
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
    seen.append(fingerprint())
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    seen.append(fingerprint())
    assert len(set(seen)) == len(seen)


def test_other_weights_and_dimensions_are_other_encoders(make_tiny):
    one, same, other, wider = (
        SentenceEncoder(str(make_tiny(name, **settings)))
        for name, settings in [("a", {}), ("b", {}), ("c", {"seed": 1}), ("d", {"dimension": 48})]
    )
    assert one.fingerprint == same.fingerprint
    assert len({one.fingerprint, other.fingerprint, wider.fingerprint}) == 3
    assert (one.dimension, wider.dimension) == (32, 48)
    assert wider.encode(["hello"]).shape == (1, 48)


# loading


def test_nothing_heavy_is_loaded_before_a_vector_is_asked_for(encoder_path):
    program = f"""
import sys
from cachestack.semantic.embed import SentenceEncoder
encoder = SentenceEncoder({str(encoder_path)!r})
assert encoder.fits_window("short") and not encoder.fits_window("é " * 300)
print(encoder.window_tokens, len(encoder.fingerprint), *encoder.languages)
heavy = {{"torch", "transformers", "sentence_transformers", "faiss"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["256", "64", "en"], done.stderr


def test_threads_that_start_together_load_once_and_agree(make_tiny):
    encoder = SentenceEncoder(str(make_tiny()))
    num_threads = 8
    barrier = threading.Barrier(num_threads)

    def work(number):
        barrier.wait()
        texts = [f"question {number} " + "word " * (5 * i) for i in range(6)]
        first = encoder.fingerprint if number % 2 else encoder.dimension
        fits = [encoder.fits_window(text + "é") for text in texts]
        return first, fits, encoder.encode(texts), encoder._model

    with ThreadPoolExecutor(num_threads) as pool:
        results = list(pool.map(work, range(num_threads)))
    assert len({id(model) for *_, model in results}) == 1
    for number, (_, fits, vectors, _) in enumerate(results):
        assert all(fits)
        alone = encoder.encode([f"question {number} "])
        np.testing.assert_allclose(vectors[0], alone[0], atol=1e-5)


def test_a_model_that_is_not_there_says_what_to_do(tmp_path):
    with pytest.raises(ModelNotFound, match=r"models pull all-minilm-l6-v2"):
        SentenceEncoder("all-minilm-l6-v2", models=tmp_path).encode([QUESTION])
    with pytest.raises(ModelNotFound, match="no model folder"):
        SentenceEncoder(str(tmp_path / "nowhere")).encode([QUESTION])


def test_a_damaged_model_is_a_named_error(make_tiny):
    folder = make_tiny()
    (folder / "model.safetensors").write_bytes(b"not a tensor")
    with pytest.raises(EncoderError, match="cannot be loaded"):
        SentenceEncoder(str(folder)).encode([QUESTION])
