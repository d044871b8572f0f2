"""The error budget's section of a policy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cachestack.policy.section import Count, Money, Section

Rate = Annotated[float, Field(gt=0, le=0.5, allow_inf_nan=False)]


class BudgetPolicy(Section):
    """How many of the answers served by meaning may be wrong, and what is spent to know it."""

    max_wrong_hit_rate: Rate | None = None
    """Wrong ones of a hundred hits by meaning, as a fraction. None: no budget; the fixed thresholds of `semantic`."""

    confidence: Annotated[float, Field(ge=0.5, le=0.999, allow_inf_nan=False)] = 0.95
    """Of the tests that tighten or suspend, and of the interval in the statistics."""

    mode: Literal["shadow", "serving"] = "serving"
    """`shadow`: nothing is served by meaning; what each threshold would have served is counted."""

    audit_share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.03
    """Of the hits by meaning, at most so many are also sent to the engine, after they were answered, and compared."""

    max_audits_per_hour: Count = 120
    """Audits of the tenant in any hour, whatever their share."""

    audit_spend_per_day: Money | None = None
    """What audits may cost in any 24 hours, in the currency of the prices. None: only their number is limited."""

    min_audits: Count = 4
    """So many audits must have come back before the threshold goes below the one it began with."""

    shadow_labels: Annotated[int, Field(ge=10)] = 60
    """Compared answers that it takes to come back from a suspension."""

    drift_every: Annotated[float, Field(ge=100, allow_inf_nan=False)] = 10_000.0
    """The drift test gives a false alarm less often than once in so many compared answers."""

    @property
    def is_on(self) -> bool:
        return self.max_wrong_hit_rate is not None
