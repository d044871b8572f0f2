"""Small tokenizers of every kind that models have, and chat templates of every style.

The tokenizers are trained here, on the same text each time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

SENTENCES = (
    "You are the help desk of ACME. How do I reset my password? I have resent the letter, and recall nothing.",
    "Où est ma carte ? Je ne sais pas où se trouve l'hôtel; c'est déjà l'été à Besançon, naïve café, Noël.",
    "def add(a, b):\n    return a + b\n\n\nfor i in range(10):\n\tprint(i, end='')\r\n",
    "日本語のテキストです。中文也可以。今日は良い天気ですね。",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "😀 👍🏽 👩‍👩‍👧 🇫🇷 ☎️  two  spaces   three\tand tabs, numbers 12 345 1234567 and 2024-07-26.",
    "Billing, technical, account, refund. They're ours; we'll see, don't. User: hello Assistant: yes System: no",
)
CORPUS = tuple(f"{SENTENCES[i % len(SENTENCES)]} {i * 37} {'ab' * (i % 5)}" for i in range(300))
SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FROM_THE_RIGHT = r"\p{N}{1,3}(?=(\p{N}{3})*(\P{N}|$))| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_level() -> Any:
    """GPT-2's: byte pairs, and contractions apart."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return _trained(inner, _bpe(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def llama_3() -> Any:
    """Line ends go with the sign before them, and words of the vocabulary are taken as they are."""
    return _split_bytes(LLAMA_3, ignore_merges=True)


def from_the_right() -> Any:
    """Digits in threes from the right: every further digit moves all of them."""
    return _split_bytes(FROM_THE_RIGHT)


def composed() -> Any:
    """Byte level after NFC, as Qwen's: an accent that follows changes the letter before it."""
    from tokenizers import normalizers

    return _split_bytes(LLAMA_3, normalizer=normalizers.NFC())


def llama_2() -> Any:
    """SentencePiece's byte pairs as they were converted first: a space before every text, no pre-tokenizer."""
    from tokenizers import Tokenizer, models, normalizers

    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _sentence_piece(inner)


def gemma() -> Any:
    """The same without the space before the text."""
    from tokenizers import Tokenizer, models, normalizers

    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Replace(" ", "▁")
    return _sentence_piece(inner)


def metaspace(scheme: str = "first") -> Any:
    """SentencePiece's byte pairs as they are converted now."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    return _sentence_piece(inner)


def unigram(scheme: str = "always") -> Any:
    """XLM-RoBERTa's and T5's: likeliest pieces, after NFKC, runs of spaces as one."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    inner = Tokenizer(models.Unigram())
    inner.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(
        vocab_size=700, special_tokens=[*SPECIAL, *BYTES], unk_token="<unk>", show_progress=False
    )
    return _trained(inner, trainer)


def wordpiece() -> Any:
    """BERT's: lower case, no accents, no spaces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    inner = Tokenizer(models.WordPiece(unk_token="<unk>"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _trained(inner, trainers.WordPieceTrainer(vocab_size=700, special_tokens=[*SPECIAL], show_progress=False))


def cased_wordpiece() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    inner = Tokenizer(models.WordPiece(unk_token="<unk>"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _trained(inner, trainers.WordPieceTrainer(vocab_size=700, special_tokens=[*SPECIAL], show_progress=False))


KINDS: dict[str, Callable[[], Any]] = {
    kind.__name__: functools.cache(kind)
    for kind in (
        *(byte_level, llama_3, from_the_right, composed),
        *(llama_2, gemma, metaspace, unigram),
        *(wordpiece, cased_wordpiece),
    )
} | {
    "metaspace_always": functools.cache(lambda: metaspace("always")),
    "metaspace_never": functools.cache(lambda: metaspace("never")),
    "unigram_first": functools.cache(lambda: unigram("first")),
}

GENERATION = "{% if add_generation_prompt %}"
STYLES: dict[str, str | None] = {
    "none": None,
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        + GENERATION
        + "{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "bos": (
        "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
        "{% endfor %}" + GENERATION + "{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "llama_2": (
        "{% set s = '' %}{% if messages[0]['role'] == 'system' %}"
        "{% set s = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}"
        "{% set messages = messages[1:] %}{% endif %}"
        "{% for m in messages %}{% if m['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + (s if loop.first else '') + m['content'] + ' [/INST]' }}"
        "{% else %}{{ ' ' + m['content'] + ' ' + eos_token }}{% endif %}{% endfor %}"
    ),
    "turns": (
        "{% for m in messages %}{{ m['role'] | capitalize + ': ' + m['content'] + '\n' }}{% endfor %}"
        + GENERATION
        + "Assistant:{% endif %}"
    ),
    "strips": (
        "{% for m in messages %}{{ '### ' + m['role'] + '\n' + (m['content'] | trim) + '\n\n' }}{% endfor %}"
        + GENERATION
        + "### assistant\n{% endif %}"
    ),
    "no_system": (
        "{{ bos_token }}{% for m in messages %}"
        "{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] | trim) + '<|im_end|>\n' }}{% endfor %}"
        + GENERATION
        + "{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "joined": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    "joined_stripped": "{% for m in messages %}{{ m['content'] | trim }}{% endfor %}",
}


def wrapped(inner: Any, *, style: str, adds_bos: bool = False) -> Any:
    """A tokenizer as a model brings it. `adds_bos`: it puts its BOS before every text, and its EOS after it."""
    from tokenizers import AddedToken, Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer.from_str(inner.to_str())
    if adds_bos:
        ends = [(token, inner.token_to_id(token)) for token in ("<s>", "</s>")]
        inner.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL[3:]],
    )
    tokenizer.chat_template = STYLES[style]
    return tokenizer


def _split_bytes(pattern: str, *, ignore_merges: bool = False, normalizer: Any = None) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    inner = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        inner.normalizer = normalizer
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    inner.decoder = decoders.ByteLevel()
    return _trained(inner, _bpe(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def _sentence_piece(inner: Any) -> Any:
    """Trained on words apart, so that no piece spans a space; used without that."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    apart = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    apart.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    trained = _trained(apart, _bpe(special_tokens=[*SPECIAL, *BYTES]))
    inner.model = trained.model
    inner.add_special_tokens(list(SPECIAL))
    return inner


def _bpe(**options: Any) -> Any:
    from tokenizers import trainers

    options = {"vocab_size": 900, "special_tokens": [*SPECIAL], "show_progress": False} | options
    return trainers.BpeTrainer(**options)


def _trained(inner: Any, trainer: Any) -> Any:
    inner.train_from_iterator(CORPUS, trainer)
    return inner
