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
from cachestack.prefix.base import Label, Lease, PoolSizes, Published
from cachestack.prefix.pool import BlockPool, Pressure

PrefixLookup = Hit[Lease] | Partial[Lease] | Miss | Bypass
PrefixView = Hit[int] | Partial[int] | Miss | Bypass


@dataclass(frozen=True, slots=True)
class PrefixPlan:
    """What to do with one prompt. Release it when its request has ended, however that was.

    `past` goes to the engine, and so does `publish_at`: a last position of `len(prompt.ids)` asks for the rest and the
    generated tokens (see TokenEngine).
    """

    lookup: PrefixLookup
    past: tuple[KVRun, ...] = ()
    publish_at: tuple[int, ...] = ()
    detail: Detail = field(default_factory=dict)
    fingerprint: str = ""
    salt: bytes = b""
    model: str = ""
    tenant: str = ""
    max_bytes: int | None = None
    memory_pressure: Pressure = "evict"

    def release(self) -> None:
        if isinstance(self.lookup, (Hit, Partial)):
            self.lookup.value.release()


class PrefixLayer:
    """`secret` salts block hashes by tenant: without it nobody can tell from a hash what a tenant has asked."""

    def __init__(self, pool: BlockPool, secret: bytes) -> None:
        self.pool = pool
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
        unsupported: str | None = None,
    ) -> PrefixPlan:
        """The plan for a prompt. A hit or partial one holds a lease until it is released."""
        salt = tenant_salt(self._secret, tenant)
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
            lease = self.pool.match(prompt.ids, max_tokens=limit, fingerprint=fingerprint, salt=salt)
            if lease is not None and lease.num_tokens < policy.min_tokens:
                lease.release()
                lease = None
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
            max_bytes=policy.max_bytes,
            memory_pressure=fallback.memory_pressure,
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
        matched = self.pool.peek(prompt.ids, max_tokens=limit, fingerprint=fingerprint, salt=salt)
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
            fingerprint=plan.fingerprint,
            salt=plan.salt,
            label=Label(plan.tenant, plan.model, str(computed.detail.get("dtype", ""))),
            max_label_bytes=plan.max_bytes,
            memory_pressure=plan.memory_pressure,
        )

    def invalidate(self, tenant: str) -> int:
        """Forget a tenant's KV; returns the number of segments."""
        return self.pool.invalidate(tenant)

    def sizes(self) -> PoolSizes:
        return self.pool.sizes()


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
