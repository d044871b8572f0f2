"""One text at a time, from any number of threads: `CacheStack.score`.

What a call needs besides its text (labels as tokens, the stable prefix, the prior) is made once and kept; concurrent
calls over one prefix share their passes; a question asked before is answered from its kept logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachestack.batching import MicroBatcher
from cachestack.classified import Label
from cachestack.classify import check_template
from cachestack.errors import ContextTooLong, RequestError
from cachestack.kept_prefix import KeptPrefix
from cachestack.labelling import Decider, Deciding, Scores
from cachestack.passes import TenantRows, decider, score_alone, score_behind
from cachestack.policy import Policy
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.rows import LogitRows
from cachestack.recent import Recent

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine
    from cachestack.engines.transformers.scoring import LabelScores

MAX_SCORERS = 64


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A text's label and what it cost. `is_repeated`: it had been asked before, and no pass was made."""

    label: Label
    num_tokens: int = 0
    reused_tokens: int = 0
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class _Task:
    """What a scorer is made for. Part of it is the tenant: how long one takes must not tell what another has asked."""

    engine: TransformersEngine
    fingerprint: str
    tenant: str
    labels: tuple[str, ...]
    prompt: str
    template: str
    scores: Scores
    kv_dtype: str


@dataclass(frozen=True, slots=True)
class _Member:
    ids: tuple[int, ...]
    user: str | None
    policy: Policy


@dataclass(frozen=True, slots=True)
class _Scored:
    scores: LabelScores
    decider: Decider
    reused_tokens: int
    is_repeated: bool = False


class TextScoring:
    """Scores single texts for one stack. `rows`: kept logits, or None to keep none."""

    def __init__(self, prefix: PrefixLayer, rows: LogitRows | None = None, *, max_scorers: int = MAX_SCORERS) -> None:
        self.rows = rows
        self._prefix = prefix
        self._lanes: Recent[_Task, _Lane] = Recent(max_scorers)

    def score(
        self,
        engine: TransformersEngine,
        policy: Policy,
        text: str,
        labels: Iterable[str],
        *,
        prompt: str,
        template: str,
        tenant: str,
        user: str | None,
        how: Deciding,
    ) -> ScoredText:
        """See `CacheStack.score`."""
        from cachestack.engines.transformers.labels import check_labels

        check_template(template)
        chosen = labels if isinstance(labels, str) else tuple(labels)
        if isinstance(chosen, str) or not all(isinstance(label, str) for label in chosen):
            check_labels(chosen)  # says what is wrong
        kv_dtype = policy.prefix.kv_dtype
        task = _Task(engine, engine.fingerprint, tenant, tuple(chosen), prompt, template, how.scores, kv_dtype)
        return self._lanes.get(task, lambda: _Lane(task, self._prefix, self.rows)).score(text, user, policy, how)

    def invalidate(self, tenant: str | None, user: str | None = None) -> None:
        """Forget the kept logits of a tenant, or those that only this user has (of all tenants, where none is named),
        and the tenant's scorers."""
        if self.rows is not None:
            self.rows.invalidate(tenant, user)
        if user is None:
            self._lanes.drop(lambda task: task.tenant == tenant)


class _Lane:
    """One scorer of one tenant, and the passes that its calls share."""

    def __init__(self, task: _Task, prefix: PrefixLayer, rows: LogitRows | None) -> None:
        from cachestack.engines.transformers.labels import check_labels
        from cachestack.engines.transformers.scoring import LabelScorer

        check_labels(task.labels)
        self._task = task
        self._prefix = prefix
        self._scorer = LabelScorer(
            task.engine, task.labels, prompt=task.prompt, template=task.template, whole=task.scores == "mean"
        )
        self._rows = None if rows is None else TenantRows(rows, task.fingerprint, task.tenant, task.kv_dtype)
        self._stable = () if self._scorer.unsupported_cache is not None else self._scorer.stable_tokens(())
        self._decider: Decider | None = None
        self._batcher: MicroBatcher[_Member, _Scored] = MicroBatcher(
            self._run, max_weight=self._scorer.pack_tokens, gate=self._scorer.turn
        )

    def score(self, text: str, user: str | None, policy: Policy, how: Deciding) -> ScoredText:
        with self._batcher.arrival() as arrival:
            try:
                ids = self._scorer.tokenise(text)
            except (RequestError, ContextTooLong) as error:
                return ScoredText(Label(None, error=str(error)))
            member = _Member(ids, user, policy)
            done = self._known(member)
            if done is None:
                weight = max(1, len(ids) - len(self._stable))
                done = arrival.submit(member, weight=weight, max_wait_s=policy.decode.batch_wait_ms / 1000)
        by = done.decider
        label = Decider(by.labels, by.num_scored, how, by.prior).label(done.scores.scores)
        return ScoredText(label, len(ids), done.reused_tokens, done.is_repeated)

    def _known(self, member: _Member) -> _Scored | None:
        """From kept logits, which a policy without the prefix layer does without."""
        if self._rows is None or self._decider is None or not member.policy.prefix.enabled:
            return None
        scores = self._rows.find(self._scorer, member.ids, member.user)
        return None if scores is None else _Scored(scores, self._decider, len(member.ids), is_repeated=True)

    def _run(self, members: Sequence[_Member]) -> list[_Scored]:
        """One pass for the members that begin with the prefix, and one for each other that is new."""
        policy = members[0].policy
        rows = self._rows if policy.prefix.enabled else None
        users = tuple(dict.fromkeys(member.user for member in members))
        with KeptPrefix(self._scorer, self._prefix, policy, self._task.tenant, users=users) as kept:
            by = self._decided_by(kept, rows)
            known = [self._known(member) for member in members]  # somebody may have asked it meanwhile
            new = [member for member, found in zip(members, known, strict=True) if found is None]
            if kept.is_allowed:
                new = list({member.ids: member for member in reversed(new)}.values())[::-1]
            scored = {id(member): one for member, one in self._compute(kept, rows, by, new)}
            same = {member.ids: scored[id(member)].scores for member in new}
        return [
            found or scored.get(id(member)) or _Scored(same[member.ids], by, len(member.ids), is_repeated=True)
            for member, found in zip(members, known, strict=True)
        ]

    def _compute(
        self, kept: KeptPrefix, rows: TenantRows | None, by: Decider, new: Sequence[_Member]
    ) -> Iterator[tuple[_Member, _Scored]]:
        packed = [member for member in new if self._begins(member.ids)]
        if packed:
            self._open(kept, packed[0].ids, len(packed))
        packed = [member for member in packed if kept.begins(member.ids)]
        if packed:
            prompts, users = [member.ids for member in packed], [member.user for member in packed]
            unpaid = kept.take_computed()
            for member, scores in zip(packed, score_behind(self._scorer, kept, rows, prompts, users), strict=True):
                yield member, _Scored(scores, by, kept.num_tokens - unpaid)
                unpaid = 0
        for member in new:
            if not kept.begins(member.ids):
                yield member, _Scored(score_alone(self._scorer, rows, member.ids, member.user), by, 0)

    def _decided_by(self, kept: KeptPrefix, rows: TenantRows | None) -> Decider:
        if self._decider is not None and (not self._decider.prior or self._is_unchanged()):
            return self._decider
        if self._decider is not None:
            rows = None  # they are of the model before it was changed, like the prior
        how = Deciding(self._task.scores)
        if how.scores == "prior":
            clean = [ids for ids in self._scorer.content_free() if self._begins(ids)]
            if clean:
                self._open(kept, clean[0], len(clean))
        made = decider(self._scorer, how, kept, rows)
        if self._decider is None and self._is_unchanged():
            self._decider = made
        return made

    def _is_unchanged(self) -> bool:
        """Whether the model is still what the calls of this lane found it to be."""
        return self._scorer.fingerprint == self._task.fingerprint

    def _open(self, kept: KeptPrefix, item: tuple[int, ...], num_items: int) -> None:
        if not kept.is_open:
            kept.open_at(self._stable, item, num_items=num_items)

    def _begins(self, ids: tuple[int, ...]) -> bool:
        n = len(self._stable)
        return 0 < n < len(ids) and ids[:n] == self._stable
