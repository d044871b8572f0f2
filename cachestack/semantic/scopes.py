"""Looking a question up for all, and then in what is kept for its user alone.

Entries of one user's scope exist where the policy can make them (`admission`): of personal data, and before others have
confirmed an answer. What all share is looked up first, so that the common hit costs nothing more; nothing is embedded
twice.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from cachestack.decisions import Hit, Miss, Reason
from cachestack.effects import Consult, Embed, EmbedFormer, FindExact, Search
from cachestack.entries import Entry
from cachestack.policy import Policy
from cachestack.requests import Request
from cachestack.semantic.admission.disclosures import belongs_to_somebody
from cachestack.semantic.freshness.life import max_served_age, serves
from cachestack.semantic.layer import Asked, SemanticEffect, semantic_lookup

Lookup = Generator[SemanticEffect, Any, Hit[Entry] | Miss]


def has_own_scope(request: Request, policy: Policy) -> bool:
    """Whether there may be entries for this user alone, beside those of the partition."""
    return request.user is not None and policy.admission.may_scope_to_user and "user" not in policy.semantic.walls


def is_alone(request: Request, policy: Policy) -> bool:
    """Whether no other user may share this request's call: each must be answered for itself to confirm the other, and
    what belongs to one stays with one."""
    return policy.admission.confirmations > 0 or belongs_to_somebody(request.question, request.system, policy.admission)


def of_user(asked: Asked) -> Asked:
    """The same question in its user's own scope."""
    return Asked(asked.request, asked.contract, replace(asked.partition, user=asked.request.user))


def lookup_in_scopes(
    asked: Asked, policy: Policy, encoder_languages: frozenset[str], now_s: float, *, refreshing: bool = False
) -> Lookup:
    """As `semantic_lookup`, for a request with a scope of its own: all by exact match first, then by meaning."""
    lookup = semantic_lookup(asked, policy, encoder_languages, now_s, refreshing=refreshing)
    effect: SemanticEffect = next(lookup)
    seen = _Seen()
    own: Asked | None = None
    try:
        while True:
            try:
                result = yield effect
            except Exception as error:
                effect = lookup.throw(error)
                continue
            seen.note(effect, result)
            if own is None and isinstance(effect, FindExact) and not _is_live(result, asked, policy, now_s):
                own = of_user(asked)
                mine: Entry | None = yield FindExact(own.partition, own.exact)
                if mine is not None and _is_live(mine, asked, policy, now_s):
                    return _exact_hit(mine, now_s)
            effect = lookup.send(result)
    except StopIteration as stop:
        found: Hit[Entry] | Miss = stop.value
    finally:
        lookup.close()
    if isinstance(found, Hit) or own is None or not seen.has_searched:
        return found
    in_own = yield from _again(semantic_lookup(own, policy, encoder_languages, now_s), seen)
    return in_own if isinstance(in_own, Hit) else found


def find_live_exact(
    asked: Asked, policy: Policy, now_s: float, *, own_too: bool
) -> Generator[SemanticEffect, Any, Hit[Entry] | None]:
    """What answers the very question now, in either scope. Raises StoreError."""
    for one in (asked, of_user(asked)) if own_too else (asked,):
        entry: Entry | None = yield FindExact(one.partition, one.exact)
        if entry is not None and _is_live(entry, asked, policy, now_s):
            return Hit(Reason.EXACT, entry, {"entry_id": entry.entry_id})
    return None


class _Seen:
    """What encoders gave for the question, and what the error budget allows it: one question in either scope, so that
    what is found wrong in one is denied in both."""

    def __init__(self) -> None:
        self.terms: Any = None
        self.embedded: Any = None
        self.former: Any = None
        self.has_searched = False

    def note(self, effect: SemanticEffect, result: Any) -> None:
        if isinstance(effect, Embed):
            self.embedded = result
        elif isinstance(effect, EmbedFormer):
            self.former = result
        elif isinstance(effect, Consult):
            self.terms = result
        elif isinstance(effect, Search):
            self.has_searched = True


def _again(lookup: Lookup, seen: _Seen) -> Lookup:
    """A look-up by meaning of a question that has been embedded, and was not found exactly."""
    try:
        effect = next(lookup)
        while True:
            if isinstance(effect, FindExact):
                effect = lookup.send(None)
            elif isinstance(effect, Embed):
                effect = lookup.send(seen.embedded)
            elif isinstance(effect, EmbedFormer):
                effect = lookup.send(seen.former)
            elif isinstance(effect, Consult):
                effect = lookup.send(seen.terms)
            else:
                try:
                    result = yield effect
                except Exception as error:
                    effect = lookup.throw(error)
                else:
                    effect = lookup.send(result)
    except StopIteration as stop:
        found: Hit[Entry] | Miss = stop.value
        return found
    finally:
        lookup.close()


def _is_live(entry: Any, asked: Asked, policy: Policy, now_s: float) -> bool:
    if not isinstance(entry, Entry):
        return False
    return serves(entry, asked.request, policy, now_s, max_served_age(asked.request, policy))


def _exact_hit(entry: Entry, now_s: float) -> Hit[Entry]:
    detail = {"entry_id": entry.entry_id, "age_s": round(now_s - entry.created_at_s, 3), "scope": "user"}
    return Hit(Reason.EXACT, entry, detail)
