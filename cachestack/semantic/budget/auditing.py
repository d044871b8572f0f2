"""Which hits are audited: with a probability that is fixed before the answer is known.

Any hit is audited with about a third of the share that the policy allows; one of a pair that has been served before,
`AGAIN` times in all, for certain, as long as the share is not used up: what is asked most is settled first, where a
wrong answer would be repeated most. A pair that has been served `MOST_UNCOMPARED` times and was never compared is not
served once more: that question is asked of the engine.
"""

from __future__ import annotations

from cachestack.policy.budget import BudgetPolicy

BEGIN = 1
"""So many audits are allowed ahead of the hits that pay for them."""
FIRST = 0.35
"""Of the share, the probability for any hit."""
AGAIN = 3
MOST_UNCOMPARED = 6
MOST = 0.93
"""Of the share, how much is used on purpose; chance may add a little."""


def probability(times_served: int, hits: int, audits: int, policy: BudgetPolicy) -> float:
    """Of auditing this hit, the `times_served`-th of its pair and the `hits`-th of its class; 0 where there are no
    audits at all."""
    if times_served >= AGAIN and audits + 1 <= MOST * policy.audit_share * hits + BEGIN:
        return 1.0 if policy.audit_share > 0 else 0.0
    return FIRST * policy.audit_share


def largest_value(policy: BudgetPolicy) -> float:
    """1 ÷ the smallest probability above 0."""
    return 1 / (FIRST * policy.audit_share) if policy.audit_share > 0 else 1.0
