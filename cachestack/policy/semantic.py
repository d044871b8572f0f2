"""The semantic layer's section of a policy."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from cachestack.policy.section import Section, Share


def _verifier(name: str) -> str:
    if not re.fullmatch(r"local|lexical|cross_encoder(:.+)?|judge:.+", name):
        raise ValueError("not a verifier; allowed: local, lexical, cross_encoder, cross_encoder:NAME, judge:ENGINE")
    return name


VerifierName = Annotated[str, AfterValidator(_verifier)]


class SemanticPolicy(Section):
    """The semantic layer."""

    enabled: bool = True
    """Off: every request goes to the model."""

    by_meaning: bool = True
    """Off: only the exact same question hits."""

    reject_below: Share = 0.50
    """Cosine below which nothing is served."""

    accept_from: Share = 0.90
    """Cosine from which a sensitive scope may be served, and from which the guards alone decide where `verifiers` is
    empty."""

    sensitive: bool = False
    """True: nothing is served below `accept_from`, nor where any guard has even a doubt."""

    verifiers: tuple[VerifierName, ...] = ("local",)
    """Who weighs what the guards found. The first gives a score; the others are asked, in order, where it lies between
    `doubt_score` and `accept_score`. `local` is built in, `cross_encoder` is slower and better; `cross_encoder:NAME`
    takes any model of that kind, `judge:ENGINE` asks a language model. Empty: any doubt of a guard refuses."""

    accept_score: Share = 0.75
    """Score from which the first verifier's word is enough."""

    doubt_score: Share = 0.40
    """Score below which nothing is served; between the two, the next verifier decides, and without one it is a miss."""

    verifier_deadline_ms: Annotated[float, Field(gt=0, le=60_000, allow_inf_nan=False)] = 1000.0
    """How long a verifier after the first may take; after that it has not agreed. The first load is not counted."""

    num_candidates: Annotated[int, Field(ge=1, le=100)] = 5
    """How many nearest entries are looked at."""

    conversations: Literal["facts", "alone", "same_history"] = "facts"
    """What a question in a conversation may be served by meaning under. `facts`: any history with the same facts, where
    it leans on them. `alone`: other histories only where it stands alone. `same_history`: only the very same one."""

    walls: frozenset[Literal["user", "role"]] = frozenset()
    """Who is separated within the tenant. A request without that principal is then not cached at all."""

    max_temperature: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)] = 0.3
    """A request with a higher temperature is not cached. One that sets none is."""

    languages: Literal["encoder", "any"] | frozenset[str] = "encoder"
    """Languages served by meaning: `encoder` takes what the encoder was trained for; a list is what you vouch for."""

    unguarded_languages: Literal["exact_only", "serve"] = "exact_only"
    """What to do by meaning in a language that has no guards (guarded: English, French)."""

    cross_language: bool = False
    """Whether an answer to a question in one language may serve a question in another one."""

    encoder_deadline_ms: Annotated[float, Field(gt=0, le=60_000, allow_inf_nan=False)] = 1000.0
    """How long a request waits for its question's embedding; after that it is a miss. The first load is not counted."""

    allow_tools: bool = False
    """Whether requests that carry tools may be answered from the cache."""

    @model_validator(mode="after")
    def _bands(self) -> SemanticPolicy:
        if self.accept_from < self.reject_below:
            raise ValueError(f"accept_from ({self.accept_from}) must not be below reject_below ({self.reject_below})")
        if self.accept_score < self.doubt_score:
            raise ValueError(f"accept_score ({self.accept_score}) must not be below doubt_score ({self.doubt_score})")
        in_place = ("local", "lexical")
        if self.verifiers and self.verifiers[0] not in in_place:
            raise ValueError(f"verifiers must begin with local or lexical: for example [local, {self.verifiers[0]}]")
        if any(name in in_place for name in self.verifiers[1:]):
            raise ValueError("of verifiers only the first can be local or lexical; leave the others out")
        if len(set(self.verifiers)) != len(self.verifiers):
            raise ValueError("verifiers names one twice; each is asked once")
        return self
