"""Labels as tokens: what is refused, what collides, and that scores are what the chain rule says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cachestack.engines.transformers.labels import (
    ROOT,
    LabelSet,
    first_token_scores,
    inner_scores,
    label_set,
    label_tries,
)
from cachestack.errors import LabelError

OPENING = "<|im_start|>user\nTicket: x<|im_end|>\n<|im_start|>assistant\n"
VOCABULARY = 7
END = 0


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([], "at least one"),
        (["a", ""], "label 2 of 2 is empty"),
        (["a", "b", " \t"], "label 3 of 3 is empty"),
        (["a", "b", "a"], "'a' is there twice (as 1 and 3)"),
        (["a", " a "], "'a' is there twice (as 1 and 2)"),
        (["a", 3], "label 2 of 2 is not text but int"),
        (["a", "\ud83d"], "label 2 of 2 is not valid Unicode"),
        ("abc", "not one text"),
        (["a", "<|im_end|>"], "'<|im_end|>' holds a special token"),
        (["a", "a<|im_end|>"], "'a<|im_end|>' holds a special token"),
    ],
)
def test_refused_labels_are_named(tokenizer, labels, says):
    with pytest.raises(LabelError) as error:
        label_set(tokenizer, OPENING, labels)
    assert says in str(error.value)


def test_label_without_tokens_is_named(make_tokenizer):
    from tokenizers import normalizers

    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\u200b", "")
    with pytest.raises(LabelError, match=r"'\\u200b' has no tokens"):
        label_set(tokenizer, OPENING, ["card", "\u200b"])


def test_labels_equal_to_the_model_are_both_named(make_tokenizer):
    from tokenizers import normalizers

    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(LabelError, match="'card' and 'CARD' are the same to the model"):
        label_set(tokenizer, OPENING, ["card", "account", "CARD"])


def test_labels_continue_the_opening_without_a_stray_space(tokenizer):
    found = label_set(tokenizer, OPENING, ["card", "  été ", "card arrival"])
    for label, ids in zip(found.labels, found.ids, strict=True):
        assert tokenizer.decode(ids) == label.strip()
        whole = tokenizer(OPENING + label.strip(), add_special_tokens=False)["input_ids"]
        assert tuple(whole[-len(ids) :]) == ids
    assert found.num_unclean == 0
    assert found.labels == ("card", "  été ", "card arrival")


def test_a_label_that_merges_with_the_opening_is_tokenised_by_itself(make_tokenizer):
    tokenizer = make_tokenizer("words", template=None)
    opening = "User: where is it Team: car"  # "card" is one token of this vocabulary
    found = label_set(tokenizer, opening, ["d", "transfer"])
    assert found.num_unclean >= 1
    alone = tuple(tokenizer("d", add_special_tokens=False)["input_ids"])
    assert found.ids[0] == alone


def test_collisions_name_the_labels(tokenizer):
    found = label_set(tokenizer, OPENING, ["card", "card arrival", "transfer", "card payment fee", "account"])
    assert found.collisions == (("card", "card arrival", "card payment fee"),)
    assert not found.by_first_token
    assert label_set(tokenizer, OPENING, ["card", "transfer"]).by_first_token


token = st.integers(1, VOCABULARY - 1)
sequences = st.lists(st.lists(token, min_size=1, max_size=4).map(tuple), min_size=1, max_size=12, unique=True)


def labels_of(ids: Sequence[tuple[int, ...]]) -> LabelSet:
    return LabelSet(tuple(map(str, ids)), tuple(ids), (END,))


def logits_after(path: Sequence[int]) -> torch.Tensor:
    """A model of our own: logits that depend on the whole path."""
    generator = torch.Generator().manual_seed(hash(tuple(path)) % 2**31)
    return torch.randn(VOCABULARY, generator=generator)


def scored(labels: LabelSet, max_nodes: int) -> list[float]:
    row = logits_after(())
    scores = first_token_scores(labels, row)
    for trie in label_tries(labels, max_nodes):
        paths: list[tuple[int, ...]] = []
        for node, parent in zip(trie.tokens, trie.parents, strict=True):
            paths.append((*(() if parent == ROOT else paths[parent]), node))
        assert list(trie.depths) == [len(path) - 1 for path in paths]
        assert len(set(paths)) == len(paths), "a shared beginning is computed once"
        assert len(paths) <= max_nodes or len(trie.members) == 1
        if paths:
            nodes = torch.stack([logits_after(path) for path in paths])
            scores.index_add_(0, torch.tensor(trie.members), inner_scores(labels, trie, nodes))
    return scores.tolist()


@given(ids=sequences, max_nodes=st.integers(0, 12))
def test_scores_follow_the_chain_rule_however_the_trie_is_cut(ids, max_nodes):
    labels = labels_of(ids)
    for own, score in zip(ids, scored(labels, max_nodes), strict=True):
        tokens = list(own)
        if any(other != own and other[: len(own)] == own for other in ids):
            tokens.append(END)
        expected = sum(float(logits_after(tokens[:n]).double().log_softmax(-1)[t]) for n, t in enumerate(tokens))
        assert score == pytest.approx(expected, abs=1e-5)


@given(ids=sequences)
def test_labels_never_overlap_so_their_mass_is_at_most_one(ids):
    assert math.fsum(math.exp(s) for s in scored(labels_of(ids), 100)) <= 1 + 1e-6


def test_all_sequences_together_have_the_whole_mass():
    """Every first token but the end, each alone or with a second one: what is missing is the end at once."""
    tokens = range(1, VOCABULARY)
    ids = [*((t,) for t in tokens), *itertools.product(tokens, tokens)]
    mass = math.fsum(math.exp(s) for s in scored(labels_of(ids), 100))
    at_once = float(logits_after(()).double().softmax(-1)[END])
    assert mass == pytest.approx(1 - at_once, abs=1e-6)


def test_must_end_only_for_labels_that_begin_another():
    labels = labels_of([(1,), (1, 2), (1, 2, 3), (2, 3), (1, 4)])
    assert labels.must_end == {0, 1}
