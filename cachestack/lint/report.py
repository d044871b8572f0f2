"""What the linter found, as values; `to_json` is the schema that docs/prompts.md describes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cachestack.engines.token_space import Unit


@dataclass(frozen=True, slots=True)
class Divergence:
    """One place, shown. `position` counts tokens of the later prompt from 0; `earlier_value` and `value` are what
    stands there in the two prompts, shortened and with secrets hidden (`earlier` is empty where one prompt alone shows
    it). `proposal` says what to do about this place."""

    earlier: str
    later: str
    where: str
    position: int
    before: str
    earlier_value: str
    value: str
    after: str
    proposal: str


@dataclass(frozen=True, slots=True)
class Finding:
    """All places of one kind. `tokens_lost` are those behind them that could have been shared with earlier prompts and
    were not; tokens behind places of two kinds count for both. `observed` is False for what one prompt alone makes
    likely. `ms_lost` is None where a token's cost is not known."""

    kind: str
    num_prompts: int
    tokens_lost: int
    ms_lost: float | None
    proposal: str
    examples: tuple[Divergence, ...]
    observed: bool = True


@dataclass(frozen=True, slots=True)
class RepeatedPrefix:
    """A beginning that `num_prompts` of a tenant's prompts share. `share`: of the tokens of all prompts."""

    tenant: str
    num_prompts: int
    num_tokens: int
    share: float
    begins: str
    ends: str


@dataclass(frozen=True, slots=True)
class LintReport:
    """`reusable_tokens`: what a prefix cache without limits could reuse of these prompts, in this order;
    `mended_tokens`: an estimate of the same where the findings are mended. Tokens are characters where `unit` says so.
    """

    model: str
    unit: Unit
    num_prompts: int
    num_tenants: int
    num_families: int
    num_tokens: int
    reusable_tokens: int
    mended_tokens: int
    ms_per_token: float | None
    prefixes: tuple[RepeatedPrefix, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def reusable_share(self) -> float:
        return self.reusable_tokens / max(1, self.num_tokens)

    @property
    def mended_share(self) -> float:
        return self.mended_tokens / max(1, self.num_tokens)

    def to_json(self) -> dict[str, Any]:
        """JSON-able values."""
        return {
            "model": self.model,
            "unit": self.unit,
            "prompts": self.num_prompts,
            "tenants": self.num_tenants,
            "families": self.num_families,
            "tokens": self.num_tokens,
            "reusable_tokens": self.reusable_tokens,
            "reusable_share": round(self.reusable_share, 4),
            "mended_tokens": self.mended_tokens,
            "mended_share": round(self.mended_share, 4),
            "ms_per_token": self.ms_per_token,
            "prefixes": [
                {
                    "tenant": p.tenant,
                    "prompts": p.num_prompts,
                    "tokens": p.num_tokens,
                    "share": round(p.share, 4),
                    "begins": p.begins,
                    "ends": p.ends,
                }
                for p in self.prefixes
            ],
            "findings": [
                {
                    "kind": f.kind,
                    "prompts": f.num_prompts,
                    "tokens_lost": f.tokens_lost,
                    "ms_lost": f.ms_lost,
                    "observed": f.observed,
                    "proposal": f.proposal,
                    "examples": [asdict(example) for example in f.examples],
                }
                for f in self.findings
            ],
            "notes": list(self.notes),
        }
