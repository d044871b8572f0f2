"""Items through the model over one kept prefix: repeated ones from kept logits, the others in packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachestack.kept_prefix import KeptPrefix
from cachestack.labelling import Decider, Deciding, is_number, prior_of
from cachestack.policy import Policy
from cachestack.prefix.rows import LogitRows

if TYPE_CHECKING:
    from cachestack.engines.transformers.scoring import LabelScorer, LabelScores


@dataclass(frozen=True, slots=True)
class TenantRows:
    """Kept logits as one tenant sees them, of the model in the state that `fingerprint` names, over KV that is kept in
    the precision `kv_dtype`: the policy's word."""

    rows: LogitRows
    fingerprint: str
    tenant: str
    kv_dtype: str

    @property
    def _names(self) -> dict[str, str]:
        """What rows must have in common to be found."""
        return {"fingerprint": f"{self.fingerprint} {self.kv_dtype}", "tenant": self.tenant}

    @classmethod
    def of(cls, rows: LogitRows | None, scorer: LabelScorer, policy: Policy, tenant: str) -> TenantRows | None:
        """None where nothing is kept: the stack keeps no rows, or the policy has the prefix layer switched off."""
        if rows is None or not policy.prefix.enabled:
            return None
        return cls(rows, scorer.fingerprint, tenant, policy.prefix.kv_dtype)

    def find(self, scorer: LabelScorer, ids: Sequence[int], user: str | None = None) -> LabelScores | None:
        """Scores without a pass; None where the row is not there, or is not all that these labels need."""
        if not scorer.row_suffices:
            return None
        row = self.rows.find(ids, **self._names, user=user)
        return None if row is None else scorer.scores_of(row)

    def keep(
        self,
        scorer: LabelScorer,
        prompts: Sequence[tuple[int, ...]],
        scored: Sequence[LabelScores],
        users: Sequence[str | None],
        epoch: int,
    ) -> None:
        """Keep the rows of a pass that began at `epoch`; none where the model was changed meanwhile."""
        if scorer.fingerprint != self.fingerprint:
            return
        for ids, one, user in zip(prompts, scored, users, strict=True):
            row = scorer.keepable(one)
            if row is not None:
                self.rows.keep(ids, row.payload, row.num_bytes, **self._names, user=user, epoch=epoch)


def score_behind(
    scorer: LabelScorer,
    kept: KeptPrefix,
    rows: TenantRows | None,
    prompts: Sequence[tuple[int, ...]],
    users: Sequence[str | None] | None = None,
) -> tuple[LabelScores, ...]:
    """Scores of prompts that begin with the kept prefix, in one pack. Their rows are kept."""
    epoch = rows.rows.epoch if rows is not None else 0
    suffixes = [ids[kept.num_tokens :] for ids in prompts]
    scored = scorer.score(kept.runs, suffixes)
    if len(prompts) > 1 and not all(is_number(one.scores) for one in scored):
        # A value that is not a number passes through any mask (0 × NaN): alone, it harms nobody else.
        scored = tuple(scorer.score(kept.runs, [suffix])[0] for suffix in suffixes)
    if rows is not None:
        rows.keep(scorer, prompts, scored, users or [None] * len(prompts), epoch)
    return scored


def score_alone(
    scorer: LabelScorer, rows: TenantRows | None, ids: tuple[int, ...], user: str | None = None
) -> LabelScores:
    """Scores of a whole prompt, which does not begin with the prefix. Its row is kept."""
    epoch = rows.rows.epoch if rows is not None else 0
    scored = scorer.whole(ids)
    if rows is not None:
        rows.keep(scorer, [ids], [scored], [user], epoch)
    return scored


def decider(scorer: LabelScorer, how: Deciding, kept: KeptPrefix | None, rows: TenantRows | None) -> Decider:
    """What turns sums into labels. For prior-corrected scores the inputs without content are scored here, in one pack
    behind the prefix where they begin with it; without a prefix, as whole prompts."""
    labels = scorer.labels
    if how.scores != "prior":
        return Decider(labels.labels, labels.num_scored, how)
    from cachestack.engines.transformers.packing import plan_packs

    sums: dict[tuple[int, ...], Sequence[float]] = {}
    prompts = list(dict.fromkeys(scorer.content_free()))
    for ids in prompts:
        if rows is not None and (found := rows.find(scorer, ids)) is not None:
            sums[ids] = found.scores
    packed = [ids for ids in prompts if ids not in sums and kept is not None and kept.begins(ids)]
    if kept is not None:
        for pack in plan_packs([len(ids) - kept.num_tokens for ids in packed], scorer.pack_tokens):
            chosen = [packed[i] for i in pack]
            sums |= zip(chosen, (one.scores for one in score_behind(scorer, kept, rows, chosen)), strict=True)
    for ids in prompts:
        if ids not in sums:
            sums[ids] = score_alone(scorer, rows, ids).scores
    return Decider(labels.labels, labels.num_scored, how, prior_of([sums[ids] for ids in prompts]))
