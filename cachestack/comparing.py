"""Would the answer to one request serve another? Asked of the very lookup that `chat` runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from cachestack.decisions import Detail, Hit, Reason
from cachestack.effects import Embedding
from cachestack.entries import Entry
from cachestack.keys import contract_of
from cachestack.performer import Performer
from cachestack.policy import Policy
from cachestack.requests import Request
from cachestack.semantic.conversations import kept_context
from cachestack.semantic.freshness.life import life_of
from cachestack.semantic.language import identify
from cachestack.semantic.layer import Asked, bypass_reason, embed_question, partition_of, semantic_lookup
from cachestack.semantic.scopes import has_own_scope, is_alone, lookup_in_scopes, of_user
from cachestack.semantic.single import run_with_one_entry
from cachestack.semantic.verifiers.packing import languages_served


@dataclass(frozen=True, slots=True)
class Comparison:
    """`serves`: the first answer would be served for the second request. `differs` names walls and contract fields."""

    serves: bool
    reason: Reason
    differs: tuple[str, ...] = ()
    detail: Detail = field(default_factory=dict)

    def __str__(self) -> str:
        head = f"{'serves' if self.serves else 'does not serve'}: {self.reason.value}"
        lines = [head] + [f"  differs: {name}" for name in self.differs]
        return "\n".join(lines + [f"  {key}: {value}" for key, value in self.detail.items()])


def compare_requests(
    cached: Request, new: Request, policy_of: Callable[[str], Policy], performer: Performer, now_s: float
) -> Comparison:
    """Compare as if `cached` had just been answered and `new` came now."""
    first_policy, policy = policy_of(cached.tenant), policy_of(new.tenant)
    for request, its in ((cached, first_policy), (new, policy)):
        reason = bypass_reason(request, its.semantic)
        if reason is not None:
            return Comparison(False, reason)
    if not cached.store or not new.lookup:
        return Comparison(False, Reason.NO_LOOKUP if cached.store else Reason.NO_STORE)
    try:
        first, second = _asked(cached, first_policy), _asked(new, policy)
    except (TypeError, ValueError):
        return Comparison(False, Reason.UNCACHEABLE_ARGUMENT)
    differs = _differences(first, second)
    languages = languages_served(performer.encoder)
    stored = run_with_one_entry(
        embed_question(cached, first_policy, languages), None, performer.embed, performer.verify
    )
    entry = entry_as_if_answered(first, stored, first_policy, now_s)
    lookup = lookup_in_scopes if has_own_scope(new, policy) else semantic_lookup
    found = run_with_one_entry(lookup(second, policy, languages, now_s), entry, performer.embed, performer.verify)
    return Comparison(isinstance(found, Hit), found.reason, differs, found.detail)


def entry_as_if_answered(asked: Asked, embedding: Embedding | Reason, policy: Policy, now_s: float) -> Entry:
    """The entry that a finished answer to `asked` would have left, with an empty answer."""
    known = isinstance(embedding, Embedding)
    is_own = has_own_scope(asked.request, policy) and is_alone(asked.request, policy)
    place = of_user(asked) if is_own else asked
    return Entry(
        entry_id="compared",
        partition=place.partition,
        contract=asked.contract.digest,
        exact=place.exact,
        question=asked.request.question,
        answer="",
        finish_reason="stop",
        prompt_tokens=0,
        completion_tokens=0,
        model=asked.request.model,
        created_at_s=now_s,
        expires_at_s=now_s + 1,
        stale_until_s=now_s + 1,
        vector=embedding.vector if known else None,  # type: ignore[union-attr]
        encoder=embedding.encoder if known else None,  # type: ignore[union-attr]
        states=embedding.states if known else b"",  # type: ignore[union-attr]
        language=identify(asked.request.question),
        without_history="" if asked.contract.is_first else asked.contract.group,
        context=kept_context(asked.contract, asked.request.messages, policy.semantic),
        principal=asked.request.user,
        changes="never",
        own_state=life_of(asked.request, policy, now_s).own_state,
    )


def _asked(request: Request, policy: Policy) -> Asked:
    return Asked(request, contract_of(request, request.model), partition_of(request, policy.semantic))


def _differences(first: Asked, second: Asked) -> tuple[str, ...]:
    walls = _changed(asdict(first.partition), asdict(second.partition))
    one, two = asdict(first.contract), asdict(second.contract)
    parameters = _changed(json.loads(one.pop("parameters")), json.loads(two.pop("parameters")))
    return (*walls, *_changed(one, two), *parameters)


def _changed(one: dict[str, Any], two: dict[str, Any]) -> tuple[str, ...]:
    return tuple(key for key in one if one[key] != two.get(key))
