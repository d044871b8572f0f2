"""An encoder that has changed under the same name or fingerprint is another one. (Trap 12.)"""

from __future__ import annotations

import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cachestack.keys import Partition
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.known_encoders import CANARIES, KnownEncoders, RecognisedEncoder


class TurnedEncoder:
    """An in-memory encoder that says the same fingerprint whatever it does: letter counts, turned by an angle."""

    name, languages, window_tokens = "turned", frozenset[str](), 500

    def __init__(self, angle=0.0, dimension=26, fingerprint="the same / always"):
        self.angle, self.dimension, self.fingerprint = angle, dimension, fingerprint

    def fits_window(self, text):
        return len(text) <= self.window_tokens

    def encode(self, texts):
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for letter in text.lower():
                row[ord(letter) % self.dimension] += 1
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        turned = rows.copy()
        turned[:, 0::2], turned[:, 1::2] = (
            cos * rows[:, 0::2] - sin * rows[:, 1::2],
            sin * rows[:, 0::2] + cos * rows[:, 1::2],
        )
        return turned / np.linalg.norm(turned, axis=1, keepdims=True)


def perturbed_copy(source: Path, target: Path, noise: float) -> Path:
    """The same model with other weights."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    weights = load_file(target / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for w in weights.values():
        if w.is_floating_point() and w.ndim > 1:
            w += noise * w.std() * torch.randn(w.shape, generator=generator)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.fixture
def known(tmp_path):
    return KnownEncoders(tmp_path / "encoders")


def test_the_same_encoder_is_recognised_in_the_next_process(known, tmp_path):
    first = RecognisedEncoder(TurnedEncoder(), known, "t").fingerprint
    assert first == "the same / always"
    again = RecognisedEncoder(TurnedEncoder(angle=0.001), KnownEncoders(tmp_path / "encoders"), "t").fingerprint
    assert again == first, "what rounding could explain is the same encoder"


@pytest.mark.parametrize("other", [TurnedEncoder(angle=0.2), TurnedEncoder(dimension=40)], ids=["vectors", "dimension"])
def test_other_vectors_under_the_same_fingerprint_are_another_encoder(known, other, caplog):
    first = RecognisedEncoder(TurnedEncoder(), known, "t").fingerprint
    with caplog.at_level(logging.WARNING, "cachestack"):
        second = RecognisedEncoder(other, known, "t")
        assert second.fingerprint == f"{first}-1"
        assert second.fingerprint == f"{first}-1"
    assert len(caplog.records) == 1
    assert known.recognise(other, "t") == f"{first}-1", "and stays that one"
    assert known.recognise(TurnedEncoder(), "t") == first
    assert known.recognise(TurnedEncoder(angle=1.0), "t") == f"{first}-2"


def test_entries_of_a_changed_encoder_are_never_compared(known, tmp_path):
    """Garbage or a dimension error without the number behind the fingerprint: both encoders say they are the same."""
    from cachestack.performer import Performer
    from cachestack.semantic.index import FaissIndex
    from cachestack.stores.disk import DiskStore
    from tests.semantic.test_index_encoders import ACME, CONTRACT, entry_of

    store = DiskStore(tmp_path / "entries")
    index = FaissIndex(store)
    for number, angle, dimension in [(0, 0.0, 26), (1, 0.2, 26), (2, 0.0, 40)]:
        performer = Performer(store, index, RecognisedEncoder(TurnedEncoder(angle, dimension), known, "t"))
        made = performer.embed("How do I pay?")
        found = index.search(ACME, CONTRACT, made.vector, made.encoder, 10)
        assert found == [], "nothing of the encoders before"
        store.put(entry_of("How do I pay?", made.vector, made.encoder, number))
        found = index.search(ACME, CONTRACT, made.vector, made.encoder, 10)
        assert [round(c.similarity, 5) for c in found] == [1.0]
    store.close()


def test_a_real_model_with_other_weights(known, encoder_path, tmp_path):
    """Were the fingerprint that of the name, its canaries would give it away."""
    copy = perturbed_copy(encoder_path, tmp_path / "changed", 0.3)
    real, changed = SentenceEncoder(str(encoder_path)), SentenceEncoder(str(copy))
    assert changed.fingerprint != real.fingerprint, "of the files"
    first = known.recognise(real, "minilm")
    assert first == real.fingerprint
    changed.__dict__["fingerprint"] = None
    lying = RecognisedEncoder(_Lying(changed, real.fingerprint), known, "minilm")
    assert lying.fingerprint == f"{first}-1"
    assert known.recognise(SentenceEncoder(str(encoder_path)), "minilm") == first


class _Lying:
    def __init__(self, encoder, fingerprint):
        self._encoder, self.fingerprint = encoder, fingerprint

    def __getattr__(self, name):
        return getattr(self._encoder, name)


def test_token_states_pass_through_only_where_there_are_some(known, encoder_path):
    real = RecognisedEncoder(SentenceEncoder(str(encoder_path)), known, "minilm")
    assert real.encode_with_tokens(["hello"])[0].tokens is not None
    assert not hasattr(RecognisedEncoder(TurnedEncoder(), known, "t"), "encode_with_tokens")


def test_an_encoder_with_a_small_window_is_recognised_by_what_fits(known):
    class Small(TurnedEncoder):
        window_tokens = 10

        def encode(self, texts):
            assert all(len(text) <= 10 for text in texts)
            return super().encode(texts)

    assert known.recognise(Small(), "s") == "the same / always"
    Small.window_tokens = 0
    assert known.recognise(Small(), "s") == "the same / always"


def test_processes_that_start_together_agree(known, tmp_path):
    encoders = [TurnedEncoder(), TurnedEncoder(angle=0.2)] * 8
    folders = [KnownEncoders(tmp_path / "encoders") for _ in encoders]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda k, e: k.recognise(e, "t"), folders, encoders))
    assert {len(set(found[0::2])), len(set(found[1::2]))} == {1}
    assert set(found[0::2]) != set(found[1::2])


def test_a_damaged_or_forbidden_folder_recognises_nobody(known, tmp_path):
    known.recognise(TurnedEncoder(fingerprint="abc"), "t")
    (tmp_path / "encoders/abc.npz").write_bytes(b"PK\x03\x04 cut")
    assert known.recognise(TurnedEncoder(fingerprint="abc"), "t") == "abc"
    assert known.recognise(TurnedEncoder(0.2, fingerprint="abc"), "t") == "abc-1", "written anew"
    (tmp_path / "file").write_text("")
    assert KnownEncoders(tmp_path / "file").recognise(TurnedEncoder(), "t") == "the same / always"


def test_which_encoders_were_before(known):
    partition, other = Partition("acme"), Partition("other")
    for fingerprint in ("a", "b"):
        known.recognise(TurnedEncoder(fingerprint=fingerprint), f"ref of {fingerprint}")
    assert known.use("a") == ()
    known.note_moved("a", partition)
    assert known.use("a") == (), "the next process"
    assert known.has_moved("a", partition)
    assert not known.has_moved("a", other)
    assert [(m.fingerprint, m.ref) for m in known.use("b")] == [("a", "ref of a")]
    assert [m.fingerprint for m in known.use("a")] == ["b"]
    assert not known.has_moved("a", partition), "entries of b may have come since"


def test_the_canaries_are_what_they_were():
    """Other texts would make strangers of all encoders."""
    assert len(CANARIES) == len(set(CANARIES)) == 8


def test_an_encoder_of_elsewhere_is_known_by_its_vectors_until_it_is_used(known):
    elsewhere = TurnedEncoder()
    vectors = elsewhere.encode(CANARIES)
    assert known.canaries(elsewhere.fingerprint) is None
    assert known.meet(elsewhere.fingerprint, vectors)
    np.testing.assert_array_equal(known.canaries(elsewhere.fingerprint), vectors)
    assert known.recognise(TurnedEncoder(angle=0.2), "t") == f"{elsewhere.fingerprint}-1", "the one here is another"
    assert known.recognise(TurnedEncoder(), "ours") == elsewhere.fingerprint
    known.use(elsewhere.fingerprint)
    (before,) = known.use("another")
    assert before.ref == "ours", "it can be opened again by the name that it has here"


def test_vectors_that_differ_from_those_here_are_not_comparable(known):
    known.recognise(TurnedEncoder(), "t")
    assert known.meet("the same / always", TurnedEncoder(angle=0.001).encode(CANARIES))
    assert not known.meet("the same / always", TurnedEncoder(angle=0.2).encode(CANARIES))
    assert not known.meet("the same / always", TurnedEncoder(dimension=40).encode(CANARIES))
