"""The embedded model: many threads over one prefix get what each alone would."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

LABELS = ("card", "transfer", "account", "other")
SYSTEM = "Name the team that takes the bank customer's message: card, transfer, account or other."


def test_thirty_two_threads_get_what_each_alone_gets(make_stack, local_engine):
    options = {"labels": LABELS, "prompt": SYSTEM, "template": "Message: {text}"}
    texts = [f"{text} ({n})" for n in range(8) for text in ("carte perdue", "send 12 €", "😀", "close it")]
    stack, alone = make_stack(engine=local_engine, row_bytes=32_000_000), make_stack(engine=local_engine)
    barrier = threading.Barrier(32)

    def call(text):
        barrier.wait(60)
        return stack.score(text, tenant="acme", **options)

    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(call, texts))
    for text, ours in list(zip(texts, together, strict=True))[::5]:
        theirs = alone.score(text, **options)
        assert ours.label == theirs.label
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-3)
    assert [stack.score(text, tenant="acme", **options) for text in texts] == together, "from kept logits"
    assert stack.stats().by_tenant["acme"].classified_items == 64
    assert stack.memory().num_leased == 0
    stack._prefix.pool.check_integrity()
