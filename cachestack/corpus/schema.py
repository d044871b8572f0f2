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
