"""What a line of the corpus holds. Unknown keys and odd values are errors that name the place."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Language = Literal["en", "fr"]
Domain = Literal[
    "assistant",
    "bank",
    "clinical",
    "everyday",
    "health",
    "helpdesk",
    "hr",
    "knowledge",
    "law",
    "public",
    "scenes",
    "school",
    "shop",
    "software",
    "travel",
    "web",
]
Style = Literal["plain", "hasty", "formal", "long", "spoken"]
Kind = Literal[
    "negation",
    "opposite",
    "number",
    "unit",
    "date",
    "entity",
    "role_reversal",
    "direction",
    "scope",
    "quantifier",
    "asked_slot",
    "complementary",
    "technical_twin",
    "other_product",
    "other_person",
]
ConversationKind = Literal[
    "entity",
    "number",
    "date",
    "product",
    "person",
    "negation",
    "assistant_question",
    "story",
    "reference",
    "direction",
    "asked_slot",
]
Text = Annotated[str, Field(min_length=1, max_length=2000)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NearMiss(Part):
    """A question that looks much like the base and has another answer. `kind`: by what it differs."""

    kind: Kind
    text: Text


class Question(Part):
    """A base question; each of `rewordings` has the same answer, each of `near_misses` another one."""

    id: Annotated[str, Field(pattern=r"^[a-z]+-\d{4}$")]
    domain: Domain
    language: Language
    style: Style
    text: Text
    rewordings: tuple[Text, ...]
    near_misses: tuple[NearMiss, ...]


AnswerKind = Literal["good", "refusal", "apology", "error", "cut", "ask_back"]


class AnswerExample(Part):
    """An answer as a model, a server or a proxy may give it, and what it is. `writer`: who wrote it, by number, 0 where
    that is not told; `part`: what it may be used for."""

    question: Annotated[str, Field(min_length=1, max_length=4000)]
    answer: Annotated[str, Field(max_length=20_000)]
    kind: AnswerKind
    language: Language
    domain: Annotated[str, Field(min_length=1, max_length=60)] = "unknown"
    writer: Annotated[int, Field(ge=0, le=99)] = 0
    part: Literal["dev", "test"] = "dev"


class Turn(Part):
    role: Literal["system", "user", "assistant"]
    content: Text


class Other(Part):
    """A conversation whose last message needs another answer. `kind`: by what."""

    kind: ConversationKind
    messages: Annotated[tuple[Turn, ...], Field(min_length=1)]


class Conversation(Part):
    """`standalone`: the last message can be answered without the turns before it; else `facts` of them matter. The last
    messages of `same` get the same answer, those of `different` another one."""

    id: Annotated[str, Field(pattern=r"^talk-[a-z]-\d{4}$")]
    domain: Domain
    language: Language
    standalone: bool
    facts: tuple[Text, ...]
    messages: Annotated[tuple[Turn, ...], Field(min_length=1)]
    same: Annotated[tuple[Annotated[tuple[Turn, ...], Field(min_length=1)], ...], Field(min_length=1)]
    different: Annotated[tuple[Other, ...], Field(min_length=2)]


AnswerText = Annotated[str, Field(min_length=1, max_length=8000)]


class AnswerPair(Part):
    """Two answers to one question. `same`: a person would learn the same from both. `kind`: by what they differ."""

    id: Annotated[str, Field(pattern=r"^answer-\d{4}$")]
    part: Literal["dev", "test"]
    domain: Annotated[str, Field(pattern=r"^[a-z_]{2,20}$")]
    language: Language
    kind: Annotated[str, Field(pattern=r"^[a-z_]{2,30}$")]
    question: Text
    x: AnswerText
    y: AnswerText
    same: bool


class Dated(Part):
    """A question by itself, and how soon another answer to it is right. `never`: what was so stays so; `slow`: months
    or years; `fast`: within days, or it is somebody's own state. `split`: what it may be used for."""

    id: Annotated[str, Field(pattern=r"^fresh-\d{4}$")]
    question: Text
    changes: Literal["never", "slow", "fast"]
    language: Language
    domain: Annotated[str, Field(pattern=r"^[a-z_]+$")]
    split: Literal["train", "validation", "test"]
