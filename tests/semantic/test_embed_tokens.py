"""Token states: what the encoder made of each wordpiece, and how it comes to entries and to the decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from cachestack.decisions import Reason
from cachestack.effects import Embedding
from cachestack.entries import Entry
from cachestack.errors import EncoderError
from cachestack.keys import Partition, contract_of
from cachestack.performer import Performer
from cachestack.policy import Policy
from cachestack.requests import Message, Request
from cachestack.semantic.base import Encoded, TokenStates
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.embedding import embed_texts
from cachestack.semantic.layer import Asked, partition_of, semantic_lookup
from cachestack.stores.codec import decode_entry, encode_entry
from cachestack.stores.memory import MemoryStore

QUESTION = "How do I reset my password?"


class LengthPacker:
    """Says how many wordpieces there were, and how wide their states are."""

    def pack(self, text: str, tokens: TokenStates) -> bytes:
        return f"{text}|{len(tokens.spans)}|{tokens.states.shape[1]}".encode()


class BrokenPacker:
    def pack(self, text: str, tokens: TokenStates) -> bytes:
        raise RuntimeError("no room")


@pytest.fixture(scope="module")
def encoder(encoder_path: Path) -> SentenceEncoder:
    return SentenceEncoder(str(encoder_path))


def test_states_are_the_last_layer_of_the_models_own_pass_without_special_tokens(encoder, encoder_path):
    import torch
    from transformers import AutoModel, AutoTokenizer

    texts = [QUESTION, "Où est passée ma commande n° 4711 ?", "no"]
    ours = encoder.encode_with_tokens(texts)
    tokenizer, model = AutoTokenizer.from_pretrained(encoder_path), AutoModel.from_pretrained(encoder_path).eval()
    for text, one in zip(texts, ours, strict=True):
        given = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        spans = given.pop("offset_mapping")[0].numpy()[1:-1]
        with torch.inference_mode():
            states = model(**given).last_hidden_state[0].numpy()[1:-1]
        np.testing.assert_allclose(one.tokens.states, states, atol=2e-5)
        np.testing.assert_array_equal(one.tokens.spans, spans)
        assert (one.tokens.states.dtype, one.tokens.spans.dtype) == (np.float32, np.int32)


def test_vectors_are_those_of_encode(encoder):
    texts = ["a longer question about a parcel that has not come", "no", QUESTION]
    both = np.stack([one.vector for one in encoder.encode_with_tokens(texts)])
    np.testing.assert_allclose(both, encoder.encode(texts), atol=1e-6)
    assert encoder.encode_with_tokens([]) == []


def test_spans_are_of_the_text_as_given(encoder):
    text = "  Réglez\tles 12,50 € — 数 naïve🙂 "
    tokens = encoder.encode_with_tokens([text])[0].tokens
    pieces = [text[a:b] for a, b in tokens.spans]
    assert pieces == ["Rég", "lez", "les", "12", ",", "50", "€", "—", "数", "naïve🙂"]


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.text(min_size=1, max_size=60).filter(str.strip))
def test_spans_are_in_order_and_inside_the_text(encoder, text):
    if not encoder.fits_window(text):
        return
    tokens = encoder.encode_with_tokens([text])[0].tokens
    assert tokens.states.shape == (len(tokens.spans), 384)
    assert np.isfinite(tokens.states).all()
    starts, ends = tokens.spans[:, 0], tokens.spans[:, 1]
    assert (starts >= 0).all()
    assert (ends <= len(text)).all()
    assert (starts < ends).all()
    assert (np.diff(starts) >= 0).all()


def test_texts_of_one_batch_have_the_states_of_each_alone(encoder):
    texts = ["one", "one two three four five six", "one two"]
    for text, one in zip(texts, encoder.encode_with_tokens(texts), strict=True):
        alone = encoder.encode_with_tokens([text])[0].tokens
        np.testing.assert_array_equal(one.tokens.spans, alone.spans)
        np.testing.assert_allclose(one.tokens.states, alone.states, atol=2e-5)


# the way to the entry


def test_states_reach_the_embedding_only_where_there_is_a_packer(encoder):
    plain = embed_texts(encoder, [QUESTION])[0]
    packed = Performer(MemoryStore(), None, encoder, packer=LengthPacker()).embed(QUESTION)
    assert plain.states == b""
    assert Performer(MemoryStore(), None, encoder).embed(QUESTION).states, "the local verifier's, unless said otherwise"
    assert packed.states == f"{QUESTION}|7|384".encode()
    assert packed.encoder == plain.encoder
    np.testing.assert_allclose(np.frombuffer(packed.vector, "<f4"), np.frombuffer(plain.vector, "<f4"), atol=1e-6)


def test_a_packer_that_fails_costs_the_states_only(encoder):
    assert embed_texts(encoder, [QUESTION], BrokenPacker())[0] == embed_texts(encoder, [QUESTION])[0]


class NoTokens:
    """An Encoder that has no token states, and one whose vectors are wrong."""

    name, languages, window_tokens, fingerprint, dimension = "none", frozenset[str](), 99, "f" * 64, 2

    def __init__(self, vector=(1.0, 0.0)):
        self.vector = vector

    def fits_window(self, text):
        return True

    def encode(self, texts):
        return np.array([self.vector] * len(texts), dtype=np.float32)


def test_an_encoder_without_token_states_is_an_encoder():
    assert (
        embed_texts(NoTokens(), ["a", "b"], LengthPacker())
        == [Embedding(np.array([1, 0], dtype="<f4").tobytes(), "f" * 64)] * 2
    )

    class Some(NoTokens):
        def encode_with_tokens(self, texts):
            return [Encoded(vector) for vector in self.encode(texts)]

    assert embed_texts(Some(), ["a"], LengthPacker())[0].states == b""


@pytest.mark.parametrize("vector", [(1.0, 1.0), (float("nan"), 0.0), (1.0, 0.0, 0.0), (0.0, 0.0)])
def test_a_wrong_vector_is_an_error_and_a_miss(vector):
    with pytest.raises(EncoderError, match="length 1 with 2 dimensions"):
        embed_texts(NoTokens(vector), ["a"])
    assert Performer(MemoryStore(), None, NoTokens(vector)).embed("a") is Reason.ENCODER_FAILED


def test_a_miss_carries_the_states_for_the_entry():
    request = Request((Message("user", "Where is my parcel?"),), model="m")
    policy = Policy()
    asked = Asked(request, contract_of(request, "m"), partition_of(request, policy.semantic))
    lookup = semantic_lookup(asked, policy, frozenset({"en"}), 0.0)
    next(lookup)
    lookup.send(None)
    lookup.send(Embedding(b"\0" * 8, "e", b"states"))
    with pytest.raises(StopIteration) as stop:
        lookup.send([])
    assert stop.value.value.states == b"states"


def test_an_answer_is_kept_with_the_states_of_its_question(encoder):
    from cachestack.policy_set import PolicySet
    from cachestack.prefix.layer import PrefixLayer
    from cachestack.prefix.pool import BlockPool
    from cachestack.stack import CacheStack

    store = MemoryStore()
    stack = CacheStack(
        engines={},
        store=store,
        index=None,
        encoder=encoder,
        prefix=PrefixLayer(BlockPool(max_bytes=1 << 20), secret=b"s" * 32),
        policies=PolicySet.load(),
        packer=LengthPacker(),
    )
    ask = stack.wrap(tenant="acme", model="m")(lambda prompt: "an answer")
    response = ask.respond(QUESTION)
    entry = store.get(partition_of(Request((Message("user", "x"),), tenant="acme"), Policy().semantic), response.hit_id)
    assert entry.states == f"{QUESTION}|7|384".encode()


# the codec


@pytest.mark.parametrize("vector", [None, b"", b"\1" * 16])
@pytest.mark.parametrize("states", [b"", b"\2" * 9])
def test_states_survive_the_codec(vector, states):
    entry = replace(_entry(), vector=vector, states=states)
    assert decode_entry(encode_entry(entry)) == entry


def test_rows_from_before_states_are_read():
    """An entry without states is written as it always was."""
    data = encode_entry(replace(_entry(), vector=b"\1" * 16))
    assert b"states" not in data
    assert decode_entry(data).states == b""


def _entry():
    return Entry("id", Partition("acme"), "c", "x", "q", "a", "stop", 1, 1, "m", 0.0, 1.0, 1.0)
