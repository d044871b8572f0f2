"""The cross-encoder: trained on few pairs by the command that users give, kept, read, and asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.corpus import load_questions
from cachestack.errors import ModelNotFound
from cachestack.semantic.verifiers.cross_encoder import CrossEncoder, Reader, file_in, read_network, write_network
from cachestack.semantic.verifiers.known import shelf_of
from cachestack.training import cross, gathering

SAME = ("How do I renew my visa?", "What must I do to have my visa renewed?")
OTHER = ("How do I renew my visa?", "How do I cancel my visa?")


@pytest.fixture(scope="module")
def models(encoder_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder of its own that holds the default encoder."""
    folder = tmp_path_factory.mktemp("models")
    (folder / encoder_path.name).symlink_to(encoder_path)
    return folder


@pytest.fixture(scope="module")
def built(models: Path) -> Path:
    """Trained on 64 pairs, and measured on few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CACHESTACK_MODELS", str(models))
        for module in (cross, gathering):
            patch.setattr(module, "load_questions", lambda split: load_questions(split)[::80])
        assert main(["models", "build", "cross-encoder", "--pairs", "64", "--threads", "1", "--json"]) == 0
    return file_in(models)


def test_the_command_writes_a_file_that_is_read_as_it_was_trained(built: Path, models: Path) -> None:
    data = built.read_bytes()
    network, meta = read_network(data)
    assert [path.name for path in built.parent.iterdir()] == [built.name]
    assert len(data) < 14_000_000
    assert len(meta["joined"]) == 3
    assert set(meta["card"]["validation"]) == {"cross_encoder", "local", "joined"}
    assert write_network(network, {name: meta[name] for name in ("joined", "card")}) == data
    again = cross.scores_of(Reader(models), network, [SAME, OTHER])
    assert again == pytest.approx([CrossEncoder(models).log_odds(*pair) for pair in (SAME, OTHER)], abs=1e-4)


def test_training_moves_it_and_gives_the_same_weights_each_time(models: Path) -> None:
    pairs = [p for q in load_questions("train")[:4] for p in cross.pairs_of_question(q)]
    stages: list[str] = []

    def trained(seed: int) -> bytes:
        network = cross.train(Reader(models), pairs, epochs=1, seed=seed, report=lambda stage, *_: stages.append(stage))
        return write_network(network, {})

    first = trained(1)
    assert first == trained(1)
    assert first != trained(2)
    assert first != write_network(cross.network_from(Reader(models).weights).eval(), {})
    assert set(stages) == {"train"}


def test_it_is_asked_by_name_and_says_the_same_either_way(
    built: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHESTACK_MODELS", str(models))
    shelf = shelf_of()
    said = shelf.verify("cross_encoder", *SAME, 0.6, 60.0)
    assert said.agrees is None
    assert 0 < said.score < 1
    assert shelf.verify("cross_encoder", SAME[1], SAME[0], 0.6, 60.0).score == pytest.approx(said.score, abs=1e-5)
    weight, first_weight, _ = read_network(built.read_bytes())[1]["joined"]
    surer = shelf.verify("cross_encoder", *SAME, 0.7, 60.0).score
    assert (surer > said.score) is (first_weight > 0), weight
    too_long = shelf.verify("cross_encoder", "one word after another " * 60, SAME[1], 0.6, 60.0)
    assert too_long.agrees is False
    assert "too long" in str(too_long.evidence["error"])


def test_where_it_was_not_built_the_message_says_how(encoder_path: Path, tmp_path: Path) -> None:
    (tmp_path / encoder_path.name).symlink_to(encoder_path)
    with pytest.raises(ModelNotFound, match="cachestack models build cross-encoder"):
        CrossEncoder(tmp_path)


def test_what_cannot_be_built_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CACHESTACK_MODELS", str(tmp_path / "models"))
    assert main(["models", "build", "bert"]) == 2
    assert "only cross-encoder can be built" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "models").mkdir()
    file_in(tmp_path / "models").parent.write_text("a file where the folder should be")
    assert main(["models", "build", "cross-encoder", "--json"]) == 2
    out, err = capsys.readouterr()
    assert (out, "cannot be written" in " ".join(err.split())) == ("", True), json.dumps(err)
