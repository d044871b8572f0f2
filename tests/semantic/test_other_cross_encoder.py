"""Any cross-encoder from a folder: what its outputs mean, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cachestack.errors import ModelError
from cachestack.semantic.verifiers.known import shelf_of
from cachestack.semantic.verifiers.other_cross_encoder import OtherCrossEncoder

PAIR = ("How do I reset my password?", "How can I change my password?")
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "how",
    "do",
    "can",
    "i",
    "my",
    "reset",
    "change",
    "password",
    "?",
]


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    """Saves a tiny random BERT of `labels` outputs; its folder."""

    def save(*labels: str, seed: int = 0, kind: str = "BertForSequenceClassification") -> Path:
        import torch
        import transformers

        folder = tmp_path / f"model-{seed}-{len(labels)}"
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
        tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
        torch.manual_seed(seed)
        config = transformers.BertConfig(
            vocab_size=len(VOCABULARY),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=64,
            initializer_range=1.0,
            num_labels=len(labels),  # type: ignore[call-arg]
            id2label=dict(enumerate(labels)),
            label2id={label: number for number, label in enumerate(labels)},
        )
        getattr(transformers, kind)(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


def logits(folder: Path) -> np.ndarray[Any, Any]:
    """`[2 orders, outputs]`, by transformers alone."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    rows = []
    for one, other in (PAIR, PAIR[::-1]):
        with torch.inference_mode():
            rows.append(model(**tokenizer(one, other, return_tensors="pt")).logits[0].double().numpy())
    return np.array(rows)


def test_one_output_is_a_sigmoid_and_the_lower_of_both_orders_counts(saved: Any) -> None:
    folder = saved("LABEL_0")
    both = 1 / (1 + np.exp(-logits(folder)[:, 0]))
    verifier = OtherCrossEncoder(str(folder))
    said = verifier.verify_texts(*PAIR, 0.6)
    assert said.agrees is None
    assert both[0] != pytest.approx(both[1], abs=1e-3)
    assert said.score == pytest.approx(both.min(), abs=1e-5)
    assert verifier.verify_texts(PAIR[1], PAIR[0], 0.6).score == pytest.approx(said.score, abs=1e-6)


@pytest.mark.parametrize(
    ("labels", "at"),
    [
        (("contradiction", "entailment", "neutral"), 1),
        (("Entailment", "NEUTRAL", "contradiction"), 0),
        (("not_duplicate", "duplicate"), 1),
    ],
)
def test_of_several_outputs_the_one_that_says_the_same(saved: Any, labels: tuple[str, ...], at: int) -> None:
    folder = saved(*labels)
    raw = logits(folder)
    shares = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
    said = OtherCrossEncoder(str(folder)).verify_texts(*PAIR, 0.6)
    assert said.score == pytest.approx(shares[:, at].min(), abs=1e-5)


def test_outputs_without_a_meaning_are_refused(saved: Any) -> None:
    folder = saved("LABEL_0", "LABEL_1")
    with pytest.raises(ModelError, match=r"are label_0, label_1; one must be `entailment`.*set `id2label`"):
        OtherCrossEncoder(str(folder))


def test_values_that_are_not_finite_are_no_agreement(saved: Any) -> None:
    verifier = OtherCrossEncoder(str(saved("LABEL_0")))
    verifier._model.model.classifier.bias.data.fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        verifier.verify_texts(*PAIR, 0.6)


def test_a_folder_that_is_not_there_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be loaded.*give the Hugging Face id of one, or a folder"):
        OtherCrossEncoder(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="give the Hugging Face id of one, or a folder"):
        OtherCrossEncoder(str(tmp_path / "empty"))


def test_a_sentence_encoder_is_no_cross_encoder(encoder_path: Path) -> None:
    """It would be loaded with a last layer of random weights, and score anything."""
    with pytest.raises(ModelError, match="is no cross-encoder but BertModel: its last layer would be random"):
        OtherCrossEncoder(str(encoder_path))


def test_by_name_through_the_shelf(saved: Any, tmp_path: Path) -> None:
    shelf = shelf_of()
    said = shelf.verify(f"cross_encoder:{saved('LABEL_0')}", *PAIR, 0.6, 60.0)
    assert (said.agrees, said.evidence) == (None, {})
    assert 0 <= said.score <= 1
    wrong = shelf.verify(f"cross_encoder:{tmp_path / 'nowhere'}", *PAIR, 0.6, 60.0)
    assert wrong.agrees is False
    assert "ModelError" in wrong.evidence["error"]
