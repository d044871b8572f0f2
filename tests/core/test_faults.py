"""What breaks costs hits, never answers: folders that cannot be used, embeddings that are not numbers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cachestack.decisions import Layer, Reason
from cachestack.errors import EncoderError, ModelNotFound
from cachestack.stack import CacheStack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.core.conftest import Clock, MakeStack


@pytest.fixture
def unusable(tmp_path: Path) -> Path:
    """A state folder below a file: nothing can be read or written there, whoever asks."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "home"


def test_an_unusable_state_folder_means_uncached_answers_and_one_warning(
    unusable: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with CacheStack.without_engine(encoder="none", home=unusable) as stack:
        calls = []

        @stack.wrap(tenant="t", model="m")
        def ask(prompt: str) -> str:
            calls.append(prompt)
            return "fine"

        with caplog.at_level(logging.WARNING, "cachestack"):
            assert [ask("Hello there") for _ in range(3)] == ["fine"] * 3
        stats = stack.stats().by_tenant["t"]
    assert len(calls) == 3
    assert stats.requests == 3
    assert set(stats.semantic.bypasses) | set(stats.semantic.misses) <= {"store_unavailable", "no_encoder"}
    assert stats.store_failures + sum(stats.semantic.bypasses.values()) == 3
    entries = [r.message for r in caplog.records if "requests go on uncached" in r.message]
    assert len(entries) == 1, [r.message for r in caplog.records]


class Broken:
    """An encoder whose vectors are not numbers."""

    name, languages, window_tokens, fingerprint, dimension = "broken", frozenset({"en"}), 256, "broken", 4

    def fits_window(self, text: str) -> bool:
        return True

    def encode(self, texts: Sequence[str]) -> np.ndarray:  # type: ignore[type-arg]
        vectors = np.full((len(texts), 4), np.nan, dtype=np.float32)
        raise EncoderError(f"values are not finite: {vectors[0, 0]}")


def test_an_embedding_that_is_not_finite_leaves_the_exact_tier(make_stack: MakeStack) -> None:
    stack = make_stack()
    stack.performer.encoder = Broken()
    ask = stack.wrap(tenant="t", model="m")(lambda prompt: "fine")
    first = ask.respond("How do I reset my password?")  # type: ignore[attr-defined]
    assert first.trace.step(Layer.SEMANTIC).reason is Reason.ENCODER_FAILED
    assert ask.respond("How do I reset my password?").trace.served_from == "exact"  # type: ignore[attr-defined]
    assert ask.respond("How can I reset my password?").trace.served_from == "engine"  # type: ignore[attr-defined]


def test_an_entry_larger_than_the_tenants_budget_is_not_kept(
    make_stack: MakeStack, caplog: pytest.LogCaptureFixture
) -> None:
    stack = make_stack("default: {retention: {max_bytes: 100}}")
    ask = stack.wrap(tenant="t", model="m")(lambda prompt: "The blue box is in the cellar. " * 25)
    response = ask.respond("Hello there")  # type: ignore[attr-defined]
    assert response.trace.step(Layer.SETTLE).reason is Reason.TOO_LARGE
    assert not caplog.records


def test_the_budget_of_a_tenant_is_kept_by_dropping_what_was_used_least_lately(
    make_stack: MakeStack, clock: Clock
) -> None:
    stack = make_stack("default: {retention: {max_bytes: 20000}}", meaning=False)
    ask = stack.wrap(tenant="t", model="m")(lambda prompt: "x" * 2000)
    for i in range(12):
        clock.now_s += 2
        ask(f"Question {i}")
        ask("Question 0")
    assert stack.performer.store.size("t").num_bytes <= 20000
    assert ask.respond("Question 0").trace.served_from == "exact"  # type: ignore[attr-defined]
    assert ask.respond("Question 1").trace.served_from == "engine"  # type: ignore[attr-defined]


def test_expired_entries_leave_the_disk_in_time(make_stack: MakeStack, clock: Clock) -> None:
    stack = make_stack("default: {retention: {ttl_s: 10}, fallback: {stale_within_s: 10}}", meaning=False)
    ask = stack.wrap(tenant="t", model="m")(lambda prompt: "x")
    for i in range(5):
        ask(f"Question {i}")
    clock.now_s += 1000
    ask("Another one")
    assert stack.performer.store.size("t").num_entries == 1


@pytest.mark.parametrize("named", [False, True])
def test_an_encoder_that_is_not_there_costs_hits_by_meaning_unless_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, named: bool
) -> None:
    monkeypatch.setenv("CACHESTACK_MODELS", str(tmp_path / "no-models"))
    encoder = "all-minilm-l6-v2" if named else None
    with CacheStack.without_engine(encoder=encoder, home=tmp_path / "home") as stack:
        ask = stack.wrap(tenant="t", model="m")(lambda prompt: "fine")
        if named:
            with pytest.raises(ModelNotFound, match="cachestack models pull all-minilm-l6-v2"):
                ask("Hello there")
            return
        assert [ask(q) for q in ("Hello there", "Hello there", "Hi there")] == ["fine"] * 3
        stats = stack.stats().by_tenant["t"].semantic
    assert (stats.hits, stats.misses) == ({"exact": 1}, {"no_encoder": 2})
    assert [r.message.split(":")[0] for r in caplog.records] == [
        "there is no encoder, so that questions are only matched exactly"
    ]
