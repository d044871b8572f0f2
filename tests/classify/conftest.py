"""Tiny random models behind real tokenizers, a prefix layer, and the real model's classifier prompt."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.scoring import LabelScorer
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = (
    "Name the team for the ticket. Ticket: my card has not arrived. Team: card. Ticket: a transfer failed.",
    "card arrival, card payment fee, transfer, account, billing, technical, été, naïve café, 12 345",
)
VOCABULARY = 420
SYSTEM = "Name the team for the ticket: card, transfer or account. My card has not arrived: card. " * 2


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Any]:
    """`kind`: `bytes` (byte-level BPE, as most current models) or `words` (spaces are part of words, BOS added)."""

    def make(kind: str = "bytes", template: str | None = CHATML) -> Any:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
        from transformers import PreTrainedTokenizerFast

        special = ["<s>", "<|im_end|>", "<|im_start|>"]
        if kind == "bytes":
            inner = Tokenizer(models.BPE())
            inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            inner.decoder = decoders.ByteLevel()
            alphabet = pre_tokenizers.ByteLevel.alphabet()
        else:
            inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
            inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
            special = ["<unk>", *special, *(f"<0x{byte:02X}>" for byte in range(256))]
            alphabet = []
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
        inner.train_from_iterator(CORPUS, trainer)
        if kind != "bytes":
            bos = inner.token_to_id("<s>")
            inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=inner,
            bos_token="<s>",
            eos_token="<|im_end|>",
            additional_special_tokens=["<|im_start|>"],
        )
        tokenizer.chat_template = template
        return tokenizer

    return make


@pytest.fixture(scope="session")
def tokenizer(make_tokenizer: Callable[..., Any]) -> Any:
    return make_tokenizer()


@pytest.fixture(scope="session")
def make_model(tokenizer: Any) -> Callable[..., Any]:
    """A random Llama of two layers; the same weights at every call with the same arguments."""

    def make(**changes: Any) -> Any:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

        torch.manual_seed(7)
        sliding = "sliding_window" in changes
        config_class, model_class = (MistralConfig, MistralForCausalLM) if sliding else (LlamaConfig, LlamaForCausalLM)
        sizes: dict[str, Any] = {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 1024,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
        }
        attention = changes.pop("attn_implementation", "sdpa")
        model = model_class._from_config(config_class(**(sizes | changes)), attn_implementation=attention)
        with torch.no_grad():  # far from uniform, so that the best label does not hang on rounding
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(8)
        return model.eval()

    return make


@pytest.fixture(scope="session")
def make_engine(make_model: Callable[..., Any], tokenizer: Any) -> Callable[..., TransformersEngine]:
    names = itertools.count()

    def make(own_tokenizer: Any = None, **changes: Any) -> TransformersEngine:
        return TransformersEngine.from_parts(
            make_model(**changes), own_tokenizer or tokenizer, name=f"tiny-{next(names)}"
        )

    return make


@pytest.fixture(scope="session")
def engine(make_engine: Callable[..., TransformersEngine]) -> TransformersEngine:
    return make_engine()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny models gain nothing from threads, and lose much where other processes want the cores too."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def passes(monkeypatch):
    """How many suffixes or whole prompts each pass of a scorer had."""
    seen: list[int] = []
    score = LabelScorer.score

    def counted(self, past, suffixes):
        seen.append(len(suffixes))
        return score(self, past, suffixes)

    monkeypatch.setattr(LabelScorer, "score", counted)
    return seen


@pytest.fixture
def layer() -> PrefixLayer:
    return PrefixLayer(BlockPool(max_bytes=64 * 1024 * 1024), secret=b"secret")


@pytest.fixture(scope="session")
def system() -> str:
    return SYSTEM


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory, make_model: Any, tokenizer: Any) -> Path:
    """A tiny model as a folder, for the command line."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_model().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def items_file(tmp_path: Path) -> Path:
    """Six items as JSONL under the key `text`."""
    texts = ("where is my card", "transfer", "café été", "a", 'quotes "and, commas"', "two\nlines")
    file = tmp_path / "items.jsonl"
    file.write_text("".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts), encoding="utf-8")
    return file
