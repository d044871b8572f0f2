"""Tiny random models and tokenizers of several families, and how tests run a stream."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from cachestack.engines.base import Computed, KVRun, Prompt
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.requests import Request

CORPUS = (
    "You are a help desk. Answer briefly. How do I reset my password? Où est ma carte ? Je ne sais pas.",
    "def add(a, b):\n    return a + b\n\n\n# 日本語のテキスト 😀 👍🏽 naïve café",
    "billing technical account refund  two  spaces\tand tabs, numbers 12 345 and 2024-07-26.",
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VOCABULARY = 400


@dataclass(frozen=True)
class Streamed:
    pieces: tuple[str, ...]
    computed: Computed

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@pytest.fixture(scope="session")
def drain() -> Callable[..., Streamed]:
    """Runs a stream to its end."""

    def run(
        engine: TransformersEngine,
        request: Request,
        prompt: Prompt | None = None,
        past: Sequence[KVRun] = (),
        publish_at: Sequence[int] = (),
    ) -> Streamed:
        stream = engine.stream_tokens(request, prompt or engine.prepare(request), past, publish_at)
        pieces: list[str] = []
        while True:
            try:
                pieces.append(next(stream))
            except StopIteration as end:
                return Streamed(tuple(pieces), end.value)

    return run


@pytest.fixture(scope="session")
def byte_tokenizer() -> Any:
    """Byte-level BPE with a ChatML template, as most current models have."""
    return _byte_level(template=CHATML)


@pytest.fixture(scope="session")
def make_byte_tokenizer() -> Callable[..., Any]:
    return _byte_level


@pytest.fixture(scope="session")
def metaspace_tokenizer() -> Any:
    """SentencePiece-like: spaces are part of words, a BOS is added to every text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    inner.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, special_tokens=special))
    bos = inner.token_to_id("<s>")
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.fixture(scope="session")
def wordpiece_tokenizer() -> Any:
    """WordPiece, as BERT has it: spaces and unknown characters are lost."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=["[UNK]", "[SEP]"])
    inner.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", eos_token="[SEP]")


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    """A random model of a family; the same weights at every call with the same arguments."""

    def make(family: str, **changes: Any) -> Any:
        import torch
        import transformers

        torch.manual_seed(7)
        size = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        grouped = size | {"num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 256}
        ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
        match family:
            case "llama":
                config = transformers.LlamaConfig(**(grouped | ends | changes))
            case "qwen2":
                config = transformers.Qwen2Config(**(grouped | ends | changes))
            case "mistral":
                config = transformers.MistralConfig(**(grouped | ends | {"sliding_window": None} | changes))
            case "gpt2":
                sizes = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
                config = transformers.GPT2Config(**(sizes | ends | changes))
            case _:
                raise AssertionError(family)
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():  # far from uniform, so that greedy choices do not hang on rounding
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(8)
        return model.eval()

    return make


@pytest.fixture(scope="session")
def make_engine(make_model: Callable[..., Any], byte_tokenizer: Any) -> Callable[..., TransformersEngine]:
    names = itertools.count()

    def make(family: str = "llama", tokenizer: Any = None, **changes: Any) -> TransformersEngine:
        return TransformersEngine.from_parts(
            make_model(family, **changes), tokenizer or byte_tokenizer, name=f"tiny-{family}-{next(names)}"
        )

    return make


@pytest.fixture(scope="session")
def tiny_engine(make_engine: Callable[..., TransformersEngine]) -> Callable[[str], TransformersEngine]:
    """One engine a family, for tests that do not change it."""
    return functools.cache(make_engine)


def _byte_level(*, template: str | None = None, adds_bos: bool = False, vocabulary: int = VOCABULARY) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<s>", "<|im_end|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(CORPUS, trainer)
    if adds_bos:
        bos = inner.token_to_id("<s>")
        inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="<|im_end|>",
        additional_special_tokens=[AddedToken("<|im_start|>", special=True)],
    )
    tokenizer.chat_template = template
    return tokenizer
