"""The prefix layer: what a prompt may reuse of kept KV, where its prefill is split, and what is kept of it.

::

    prompt    [system prompt][turn][answer][turn][answer]│[question]  [answer]
              └─ stable ────┘└─ history ─────────────────┘└─ computed ───────┘
    reuse     at most up to the last boundary; all tokens after it are always computed, in one pass
    split     a cold prefill ends a pass at each boundary, so that warm and cold runs do the same pass after it
    kept      the runs up to the boundaries, and in conversations the rest with the answer too

A stable boundary that is not reached is always split at. The history's is only where much of it is new: in a running
conversation all but its last tokens are there, and a pass for those alone would cost more than it gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cachestack.decisions import Bypass, Detail, Hit, Miss, Partial, Reason
from cachestack.engines.base import Boundary, Computed, KVRun, Prompt
from cachestack.keys import tenant_salt
from cachestack.policy import FallbackPolicy, PrefixPolicy
from cachestack.prefix.base import Eviction, Label, Lease, Pinned, PoolSizes, Pressure, Published
from cachestack.prefix.cost import PrefillCosts
from cachestack.prefix.pool import BlockPool

PrefixLookup = Hit[Lease] | Partial[Lease] | Miss | Bypass
PrefixView = Hit[int] | Partial[int] | Miss | Bypass


@dataclass(frozen=True, slots=True)
class PrefixPlan:
    """What to do with one prompt. Release it when its request has ended, however that was.

    `past` goes to the engine, and so does `publish_at`: a last position of `len(prompt.ids)` asks for the rest and the
    generated tokens (see TokenEngine), and `kv_dtype`.
    """

    lookup: PrefixLookup
    past: tuple[KVRun, ...] = ()
    publish_at: tuple[int, ...] = ()
    detail: Detail = field(default_factory=dict)
    fingerprint: str = ""
    salt: bytes = b""
    model: str = ""
    tenant: str = ""
    user: str | None = None
    kv_dtype: str | None = None
    max_bytes: int | None = None
    min_tokens: int = 1
    memory_pressure: Pressure = "evict"
    eviction: Eviction = "value"
    moment: int = 0

    @property
    def space(self) -> str:
        """What KV must have in common to be reused: the model's fingerprint, and the precision it is kept in."""
        return _space(self.fingerprint, self.kv_dtype)

    def release(self) -> None:
        if isinstance(self.lookup, (Hit, Partial)):
            self.lookup.value.release()


class PrefixLayer:
    """`secret` salts block hashes by tenant: without it nobody can tell from a hash what a tenant has asked.

    `costs` learns what prefill costs, model by model: from `observe`, which whoever runs a plan calls.
    """

    def __init__(self, pool: BlockPool, secret: bytes) -> None:
        self.pool = pool
        self.costs = PrefillCosts()
        self._secret = secret

    def lookup(
        self,
        prompt: Prompt,
        *,
        fingerprint: str,
        model: str,
        tenant: str,
        policy: PrefixPolicy,
        fallback: FallbackPolicy,
        user: str | None = None,
        unsupported: str | None = None,
    ) -> PrefixPlan:
        """The plan for a prompt. A hit or partial one holds a lease until it is released."""
        salt = tenant_salt(self._secret, tenant)
        kv_dtype = _kv_dtype(policy)
        moment = self.pool.moment
        length = len(prompt.ids)
        reuse = _reuse(prompt, policy, fallback, unsupported)
        keeps_all = policy.keep_conversations and length >= policy.min_tokens
        found: PrefixLookup
        past: tuple[KVRun, ...] = ()
        publish_at: list[int] = []
        if isinstance(reuse, Bypass):
            found = reuse
            keeps_all = keeps_all and reuse.reason in (Reason.NO_BOUNDARY, Reason.PREFIX_TOO_SHORT)
        else:
            limit = min(reuse[-1].position, length - 1)
            lease = self.pool.match(
                prompt.ids,
                max_tokens=limit,
                fingerprint=_space(fingerprint, kv_dtype),
                salt=salt,
                user=user,
                min_tokens=policy.min_tokens,
            )
            matched = lease.num_tokens if lease is not None else 0
            past = lease.runs if lease is not None else ()
            publish_at = _splits(reuse, matched, policy.min_tokens)
            detail = {"matched_tokens": matched, "boundary": limit, "kind": reuse[-1].kind, "prompt_tokens": length}
            if lease is None:
                found = Miss(Reason.PREFIX_COLD, detail)
            elif matched == limit:
                found = Hit(Reason.PREFIX_FULL, lease, detail)
            else:
                found = Partial(Reason.PREFIX_PARTIAL, lease, detail)
        if keeps_all:
            publish_at.append(length)
        return PrefixPlan(
            lookup=found,
            past=past,
            publish_at=tuple(publish_at),
            detail=found.detail,
            fingerprint=fingerprint,
            salt=salt,
            model=model,
            tenant=tenant,
            user=user,
            kv_dtype=kv_dtype,
            max_bytes=policy.max_bytes,
            min_tokens=policy.min_tokens,
            memory_pressure=fallback.memory_pressure,
            eviction=policy.eviction,
            moment=moment,
        )

    def peek(
        self,
        prompt: Prompt,
        *,
        fingerprint: str,
        tenant: str,
        policy: PrefixPolicy,
        fallback: FallbackPolicy,
        unsupported: str | None = None,
    ) -> PrefixView:
        """What `lookup` would find, with the number of tokens in place of the lease. Leases and touches nothing."""
        reuse = _reuse(prompt, policy, fallback, unsupported)
        if isinstance(reuse, Bypass):
            return reuse
        limit = min(reuse[-1].position, len(prompt.ids) - 1)
        salt = tenant_salt(self._secret, tenant)
        space = _space(fingerprint, _kv_dtype(policy))
        matched = self.pool.peek(prompt.ids, max_tokens=limit, fingerprint=space, salt=salt)
        detail = {
            "matched_tokens": matched,
            "boundary": limit,
            "kind": reuse[-1].kind,
            "prompt_tokens": len(prompt.ids),
        }
        if matched < policy.min_tokens:
            return Miss(Reason.PREFIX_COLD, detail | {"matched_tokens": 0})
        if matched == limit:
            return Hit(Reason.PREFIX_FULL, matched, detail)
        return Partial(Reason.PREFIX_PARTIAL, matched, detail)

    def publish(self, plan: PrefixPlan, prompt: Prompt, computed: Computed) -> Published | None:
        """Keep what a finished stream computed; None where the plan asked for nothing. Call before `plan.release`."""
        if not plan.publish_at:
            return None
        refusal = None if computed.finite else Reason.NOT_FINITE
        if computed.fingerprint not in (None, plan.fingerprint):  # an adapter was switched, a weight written to
            refusal = Reason.MODEL_CHANGED
        if refusal is not None:
            length = len(computed.ids or prompt.ids)
            return Published(refusal, num_refused_tokens=length - sum(r.num_tokens for r in plan.past))
        return self.pool.publish(
            computed.ids or prompt.ids,
            computed.runs,
            fingerprint=plan.space,
            salt=plan.salt,
            label=Label(plan.tenant, plan.model, str(computed.detail.get("dtype", ""))),
            user=plan.user,
            cost=self.costs.of(plan.fingerprint).saved_s,
            max_label_bytes=plan.max_bytes,
            min_match_tokens=plan.min_tokens,
            memory_pressure=plan.memory_pressure,
            eviction=plan.eviction,
            since=plan.moment,
        )

    def observe(self, plan: PrefixPlan, prompt: Prompt, seconds: float) -> None:
        """The prefill that the plan asked for took so long."""
        past_tokens = sum(run.num_tokens for run in plan.past)
        num_splits = sum(position < len(prompt.ids) for position in plan.publish_at)
        cost = self.costs.of(plan.fingerprint)
        cost.observe(len(prompt.ids) - past_tokens, seconds, past_tokens=past_tokens, num_passes=1 + num_splits)

    def saved_s(self, plan: PrefixPlan) -> float:
        """Seconds of prefill that the plan's past saves: of the whole prompt, less that of what comes after."""
        past_tokens = sum(run.num_tokens for run in plan.past)
        return self.costs.of(plan.fingerprint).saved_s(0, past_tokens)

    def pin(self, prompt: Prompt, plan: PrefixPlan, *, num_tokens: int, for_s: float, max_bytes: int | None) -> Pinned:
        """Keep the prompt's first `num_tokens` tokens from eviction for so long. PREFIX_GONE: they are not kept."""
        lease = self.pool.match(
            prompt.ids,
            max_tokens=num_tokens,
            fingerprint=plan.space,
            salt=plan.salt,
            user=plan.user,
            is_use=False,
        )
        if lease is None:
            return Pinned(Reason.PREFIX_GONE)
        with lease:
            if lease.num_tokens < num_tokens:
                return Pinned(Reason.PREFIX_GONE)
            return self.pool.pin(lease, for_s=for_s, max_label_bytes=max_bytes)

    def invalidate(self, tenant: str | None = None, *, user: str | None = None) -> int:
        """Forget a tenant's KV, or what only a user has; returns the number of segments."""
        return self.pool.invalidate(tenant, user=user)

    def sizes(self) -> PoolSizes:
        return self.pool.sizes()


def _kv_dtype(policy: PrefixPolicy) -> str | None:
    return None if policy.kv_dtype == "model" else policy.kv_dtype


def _space(fingerprint: str, kv_dtype: str | None) -> str:
    return fingerprint if kv_dtype is None else f"{fingerprint} {kv_dtype}"


def _reuse(
    prompt: Prompt, policy: PrefixPolicy, fallback: FallbackPolicy, unsupported: str | None
) -> tuple[Boundary, ...] | Bypass:
    """The boundaries that count for this prompt, or why none does."""
    if not policy.enabled:
        return Bypass(Reason.DISABLED)
    if unsupported is not None:
        return Bypass(Reason.UNSUPPORTED_CACHE, {"why": unsupported})
    boundaries = prompt.boundaries
    if prompt.refusal is Reason.UNCLEAN_BOUNDARY:
        nearest = prompt.nearest_clean
        if fallback.unclean_boundary == "full_prompt":
            place = {"nearest_clean": nearest.position} if nearest is not None else {}
            return Bypass(Reason.UNCLEAN_BOUNDARY, {"prompt_tokens": len(prompt.ids)} | place)
        if nearest is not None:
            boundaries = tuple(sorted((*boundaries, nearest), key=lambda b: b.position))
    if not policy.keep_conversations:
        boundaries = tuple(b for b in boundaries if b.kind != "history")
    if not boundaries:
        return Bypass(prompt.refusal or Reason.NO_BOUNDARY, {"prompt_tokens": len(prompt.ids)})
    long_enough = tuple(b for b in boundaries if b.position >= policy.min_tokens)
    if not long_enough:
        return Bypass(Reason.PREFIX_TOO_SHORT, {"boundary": boundaries[-1].position, "min_tokens": policy.min_tokens})
    return long_enough


def _splits(reuse: tuple[Boundary, ...], matched: int, min_tokens: int) -> list[int]:
    """Where the prefill ends a pass: see the module's text."""
    splits: list[int] = []
    edge = matched
    for boundary in reuse:
        gap = boundary.position - edge
        if gap > 0 and (boundary.kind != "history" or gap >= min_tokens):
            splits.append(boundary.position)
            edge = boundary.position
    return splits
