"""The embedded model: packed labels and logits are those of whole prompts, and packing pays."""

from __future__ import annotations

import copy
import json

import pytest

from cachestack.classify import classify
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.labels import label_set
from cachestack.engines.transformers.packing import score_whole
from cachestack.engines.transformers.scoring import LabelScorer
from cachestack.policy import Policy

SYSTEM = (
    "You are a careful assistant of a bank's help desk. Read the customer's message and answer with exactly one word "
    "that names the team that should take it. The teams are:\n"
    "- card: anything about a debit or credit card, such as delivery, activation, or a card that does not work.\n"
    "- transfer: anything about money sent to or received from another account.\n"
    "- account: anything about opening, closing, verifying or changing an account or personal details.\n"
    "- other: everything else, such as exchange rates, fees, or questions about the app.\n"
    "Message: I still have not received my new card. Team: card\n"
    "Message: My transfer to my landlord has not arrived. Team: transfer\n"
    "Message: How do I change my address? Team: account\n"
    "Message: What exchange rate do you use? Team: other\n"
    "Answer with one word only, without punctuation."
)
TEXTS = (
    "is there a reason my new card hasn't arrived?",
    "Où est ma carte ? Elle n'est toujours pas arrivée.",
    "why",
    "I sent 1,250.00 EUR to my sister on the 3rd of May and it still says pending; what happened to it?",
    "  please   close my account\n\ntoday",
    "What is the exchange rate for ¥ 😀?",
    "1",
    "{text} <|im_end|> do not stop",
)


@pytest.mark.parametrize(
    ("labels", "by_first_token"),
    [
        (("card", "transfer", "account", "other"), True),
        (("card", "card arrival", "card payment fee", "transfer", "virement bloqué", "été"), False),
    ],
)
def test_packed_equals_whole(local_engine, layer, labels, by_first_token):
    options = {"prompt": SYSTEM, "template": "Message: {text} Team:", "tenant": "acme"}
    report = classify(local_engine, layer, Policy(), TEXTS, labels, baseline=True, **options)
    summary = report.summary
    assert summary.by_first_token is by_first_token
    assert summary.label_mismatches == 0
    assert summary.max_logit_diff < 1e-3
    assert summary.prefix_tokens >= 150
    assert summary.num_whole == summary.num_errors == 0
    assert summary.static_share > 0.8
    warm = classify(local_engine, layer, Policy(), TEXTS, labels, **options)
    assert warm.summary.cached_tokens == summary.prefix_tokens
    assert [r.label for r in warm] == [r.label for r in report]
    layer.pool.check_integrity()


def test_whole_labels_equal_plain_passes(local_engine, layer):
    """Against passes without cache, mask or trie: one a label."""
    labels = ("card", "card arrival", "transfer")
    report = classify(local_engine, layer, Policy(), TEXTS[:2], labels, prompt=SYSTEM)
    scorer = LabelScorer(local_engine, labels, prompt=SYSTEM, template="{text}")
    for text, result in zip(TEXTS, report, strict=False):
        expected = score_whole(local_engine.loaded.model, scorer.tokenise(text), scorer.labels).scores.tolist()
        assert list(result.scores.values()) == pytest.approx(expected, abs=1e-3)


ODD_LABELS = (
    "é",
    "été",
    "été indien",
    "e\u0301te\u0301",
    "New York",
    "New",
    "🎉",
    "🎉🎉",
    "日本",
    "a b  c",
    "10",
    "100 %",
)


def test_labels_of_all_kinds_are_the_tokens_that_the_model_would_write(local_engine):
    """Also those that are the same to the eye (composed and decomposed accents) but not to the model."""
    scorer = LabelScorer(local_engine, ODD_LABELS, prompt=SYSTEM, template="{text}")
    decode = local_engine.loaded.tokenizer.decode
    assert [decode(list(ids)) for ids in scorer.labels.ids] == list(ODD_LABELS)
    assert {ODD_LABELS[i] for i in scorer.labels.must_end} >= {"été", "New", "🎉"}
    assert not scorer.labels.by_first_token


def test_without_a_chat_template_labels_stand_after_a_space(local_engine):
    """`Assistant: card` is what such a model writes, not `Assistant:card`: the mass tells."""
    bare = copy.copy(local_engine.loaded.tokenizer)
    bare.chat_template = None
    engine = TransformersEngine.from_parts(local_engine.loaded.model, bare)
    labels = ("card", "transfer", "account", "other")
    scorer = LabelScorer(engine, labels, prompt=SYSTEM, template="Message: {text}")
    assert [bare.decode(list(ids)) for ids in scorer.labels.ids] == [f" {label}" for label in labels]
    prompt = scorer.tokenise(TEXTS[0])
    squeezed = label_set(bare, "Assistant:", labels)
    model = engine.loaded.model
    ours, theirs = (score_whole(model, prompt, chosen).scores.exp().sum() for chosen in (scorer.labels, squeezed))
    assert ours > 3 * theirs


def test_two_hundred_labels_are_all_in_the_tries_once(local_engine):
    labels = [f"{kind} {n}" for kind in ("carte bancaire", "virement", "compte", "🎉") for n in range(50)]
    scorer = LabelScorer(local_engine, labels, prompt=SYSTEM, template="{text}")
    assert sorted(member for trie in scorer._tries for member in trie.members) == list(range(200))
    assert all(len(trie.tokens) <= scorer.pack_tokens for trie in scorer._tries)


@pytest.mark.parametrize("scores", ["sum", "mean", "prior"])
def test_odd_labels_score_as_whole_prompts_do(local_engine, layer, scores):
    report = classify(
        local_engine, layer, Policy(), TEXTS[1:3], ODD_LABELS[:8], prompt="Reply.", scores=scores, verify=1
    )
    assert report.summary.label_mismatches == report.summary.num_errors == 0
    assert report.summary.max_logit_diff < 1e-3


@pytest.mark.full
def test_two_hundred_texts_at_least_three_times_as_fast(local_engine, layer, request):
    file = request.config.rootpath.parent / "shared" / "data" / "intents" / "banking_valid.jsonl"
    if not file.exists():
        pytest.skip(f"{file} is not here")
    with file.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines][:200]
    labels = ("card", "transfer", "account", "other")
    options = {"prompt": SYSTEM, "template": "Message: {text} Team:", "baseline": True}
    summary = classify(local_engine, layer, Policy(), texts, labels, **options).summary
    assert summary.label_mismatches == 0
    assert summary.max_logit_diff < 1e-3
    assert summary.speedup >= 3
