"""GGUF to safetensors, once: the same float32 values, in a folder that Transformers opens in seconds."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachestack.errors import MissingExtra, ModelCorrupt
from cachestack.models.catalogue import Conversion, KnownModel
from cachestack.models.manifest import Report

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

REQUIRED = ("torch", "transformers", "accelerate", "gguf", "safetensors")
STAGE = "converting"
# In hundredths of the time on two cores: where each step ends. Only the progress bar uses it. Most of it goes into
# reading the header, whose 100,000 strings Transformers parses once for the configuration, again for the weights
# and again for the tokenizer.
IMPORTED, CONFIGURED, OPENED, LOADED, TOKENIZED, SAVED, CHECKED = 3, 18, 60, 67, 87, 91, 100


def convert_gguf(model: KnownModel, source: Path, target: Path, report: Report) -> dict[str, str]:
    """Fill `target` from the GGUF file in `source`; returns the versions of the libraries that did it.

    Weights are stored as float32: the values of Q4_1 and Q8_0 blocks (scale x integer + minimum, in float32) do
    not fit into 16 bits, and rounding them would change the model. Raises `MissingExtra`, or `ModelCorrupt` when
    the result is not what the catalogue says.
    """
    assert model.conversion is not None, f"{model.name} has nothing to convert"
    for package in REQUIRED:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "local")
    report(STAGE, 0, CHECKED)
    gguf_file = model.conversion.gguf_file
    with _quiet_transformers():
        report(STAGE, IMPORTED, CHECKED)
        config = _load_config(source, gguf_file)
        report(STAGE, CONFIGURED, CHECKED)
        with _counted_tensors(lambda done, total: report(STAGE, OPENED + (LOADED - OPENED) * done // total, CHECKED)):
            weights = _load_dense(source, gguf_file, config)
        report(STAGE, LOADED, CHECKED)
        tokenizer = _load_tokenizer(source, gguf_file, weights.config.max_position_embeddings)
        report(STAGE, TOKENIZED, CHECKED)
        weights.save_pretrained(target)
        tokenizer.save_pretrained(target)
        report(STAGE, SAVED, CHECKED)
        _check(model.name, model.conversion, weights, target)
        report(STAGE, CHECKED, CHECKED)
    return {package: importlib.metadata.version(package) for package in REQUIRED} | {"dtype": "float32"}


def _load_config(source: Path, gguf_file: str) -> PreTrainedConfig:
    from transformers import AutoConfig

    config: PreTrainedConfig = AutoConfig.from_pretrained(source, gguf_file=gguf_file, local_files_only=True)
    return config


def _load_dense(source: Path, gguf_file: str, config: PreTrainedConfig) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=gguf_file,
        config=config,
        dtype=torch.float32,
        device_map={"": "cpu"},
        local_files_only=True,
        **_dequantised(),
    )
    # The tensors are plain float32 now; with the quantisation config they could be neither saved nor reloaded.
    if getattr(model, "hf_quantizer", None) is not None:
        model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    dense: PreTrainedModel = model
    return dense


@contextmanager
def _counted_tensors(report_tensor: Callable[[int, int], None]) -> Iterator[None]:
    """Transformers shows its own bar over the tensors, and no setting turns it off: count for ours instead."""
    from transformers import modeling_gguf_pytorch_utils

    reader: Any = modeling_gguf_pytorch_utils

    def counted(tensors: Sequence[Any], **_: Any) -> Iterator[Any]:
        for done, tensor in enumerate(tensors):
            report_tensor(done, len(tensors))
            yield tensor

    bar = getattr(reader, "tqdm", None)
    if bar is None:  # another version: then its bar stays
        yield
        return
    reader.tqdm = counted
    try:
        yield
    finally:
        reader.tqdm = bar


def _dequantised() -> dict[str, Any]:
    """Newer Transformers can keep the weights in GGUF blocks; they must be told not to."""
    try:
        from transformers import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


def _load_tokenizer(source: Path, gguf_file: str, window_tokens: int) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=gguf_file, local_files_only=True)
    tokenizer.model_max_length = window_tokens
    if _pre_tokenizer(source / gguf_file) == "smollm":
        _split_digits(tokenizer)
    return tokenizer


def _pre_tokenizer(gguf: Path) -> str:
    """How text is cut before merges apply: the file names the scheme, and Transformers does not read it."""
    from gguf import GGUFReader

    field = GGUFReader(gguf).fields.get("tokenizer.ggml.pre")
    return str(field.contents()) if field is not None else ""


def _split_digits(tokenizer: PreTrainedTokenizerBase) -> None:
    """SmolLM cuts out every digit first: without that, "  5" becomes other tokens than in training."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )


def _check(name: str, expected: Conversion, weights: PreTrainedModel, target: Path) -> None:
    """Read the result back as its users will: the same values, the end of a turn, the chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    again = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32, local_files_only=True).state_dict()
    for key, value in weights.state_dict().items():
        if not torch.equal(value, again[key]):
            raise ModelCorrupt(f"{name}: {key} changed while it was converted; pull it again, and report this")
    tokenizer = AutoTokenizer.from_pretrained(target, local_files_only=True)
    if tokenizer.eos_token != expected.eos_token or tokenizer.eos_token_id != weights.config.eos_token_id:
        raise ModelCorrupt(f"{name}: the end of a turn is {tokenizer.eos_token!r}, not {expected.eos_token!r}")
    if expected.template_mark not in (tokenizer.chat_template or ""):
        raise ModelCorrupt(f"{name}: the chat template lacks {expected.template_mark!r}")


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Without the library's own bars and warnings, which would tear ours; its settings are put back."""
    from transformers import utils

    logging: Any = utils.logging
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
