"""How long an answer may be kept and served: the shortest of all bounds that apply.

Nothing prolongs: policy, class, tags, phrases and the request's own wish are each an upper bound, and a relative time
in the question ends every life with its day, whatever they say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cachestack.entries import Entry
from cachestack.policy import FreshnessPolicy, Policy
from cachestack.requests import Request
from cachestack.semantic.freshness.classifying import Freshness, freshness_of
from cachestack.semantic.freshness.cues import Changes, folded
from cachestack.semantic.freshness.relative import end_of

Bounds = Iterator[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Life:
    """`ttl_s`: age from which an answer is not served, 0 for one that is not kept; `bound`: what said so. `until_s`:
    the moment from which it is not served, stale or not. `changes`: the class it was taken for, "" where it was not
    judged.
    """

    ttl_s: float
    bound: str
    until_s: float = math.inf
    changes: Changes | str = ""
    freshness: Freshness | None = None

    @property
    def own_state(self) -> bool:
        return self.freshness is not None and self.freshness.own_state

    def is_kept(self, begin_s: float) -> bool:
        return self.ttl_s > 0 and self.until_s > begin_s

    def end_s(self, begin_s: float) -> float:
        """When a life ends that began at `begin_s`."""
        return min(begin_s + self.ttl_s, self.until_s)

    def told(self) -> dict[str, Any]:
        """For a trace: where the answer moves, with the words that say so."""
        told: dict[str, Any] = {"changes": self.changes} if self.changes else {}
        told |= {"ttl_s": self.ttl_s, "bound": self.bound}
        found = self.freshness
        if found is None or (self.changes == "never" and found.relative is None):
            return told if found is None else told | {"cues": list(found.evidence)}
        told |= {"moving": found.score, "cues": list(found.evidence)}
        told |= {"relative": found.relative} if found.relative else {}
        told |= {"own_state": True} if found.own_state else {}
        return told | {"evidence": dict(found.cues)}


def life_of(request: Request, policy: Policy, now_s: float) -> Life:
    """The life of an answer to this request, asked now."""
    section = policy.freshness
    bounds = [*_of_request(request, policy)]
    if not section.enabled:
        ttl_s, bound = _shortest(bounds)
        return Life(ttl_s, bound)
    freshness = freshness_of(request.question)
    changes = class_of(freshness, section, request.tags)
    if (ttl := ttl_of(changes, section)) < math.inf:
        bounds.append((f"freshness.{changes}_ttl_s", ttl))
    if freshness.own_state and section.own_state == "not_kept" and changes == "fast":
        bounds.append(("freshness.own_state", 0.0))
    ttl_s, bound = _shortest(bounds)
    until_s = math.inf if freshness.relative is None else end_of(freshness.relative, now_s, section.timezone)
    if until_s - now_s < ttl_s:
        bound = f"end of the {freshness.relative}"
    return Life(ttl_s, bound, until_s, changes, freshness)


def class_of(freshness: Freshness, section: FreshnessPolicy, tags: tuple[str, ...]) -> Changes:
    """What the policy takes a question for."""
    if section.stable_tags and not section.stable_tags.isdisjoint(tags):
        return "never"
    return freshness.changes if freshness.is_sure else section.unsure


def ttl_of(changes: str, section: FreshnessPolicy) -> float:
    """The class's own bound."""
    match changes:
        case "fast":
            return section.fast_ttl_s
        case "slow":
            return section.slow_ttl_s
        case _:
            return math.inf if section.never_ttl_s is None else section.never_ttl_s


def max_served_age(request: Request, policy: Policy) -> float:
    """How old an answer may be, in seconds, to serve this request, its class aside: by the policy of today and the
    request's own wish, whatever held when the answer was kept."""
    section, kept_s = policy.freshness, policy.retention.ttl_s
    if request.ttl_s is not None:
        kept_s = min(request.ttl_s, kept_s)
    if section.by_tag or section.by_phrase:
        kept_s = min(ttl_s for _, ttl_s in _of_request(request, policy))
    return kept_s if request.max_age_s is None else min(request.max_age_s, kept_s)


def class_ttl(entry: Entry, policy: Policy) -> float:
    """How old an entry of its class may be by the policy of today. One that was kept without a class is judged now."""
    section = policy.freshness
    changes = entry.changes or class_of(freshness_of(entry.question), section, entry.tags)
    return ttl_of(changes, section)


def is_for(entry: Entry, request: Request, policy: Policy) -> bool:
    """Whether the entry is nobody's own state, or this asker's. What was kept as somebody's stays theirs where
    freshness is switched off later; one that was kept without a class is judged now."""
    if entry.principal == request.user:
        return True
    if entry.own_state or not policy.freshness.enabled or entry.changes:
        return not entry.own_state
    return not freshness_of(entry.question).own_state


def serves(entry: Entry, request: Request, policy: Policy, now_s: float, max_age_s: float) -> bool:
    """Whether the entry is live for this request. `max_age_s` is what `max_served_age` gives."""
    section = policy.freshness
    if not entry.own_state and (not section.enabled or (entry.changes == "never" and section.never_ttl_s is None)):
        return entry.is_live(now_s, max_age_s)
    if not section.enabled:
        return is_for(entry, request, policy) and entry.is_live(now_s, max_age_s)
    return is_for(entry, request, policy) and entry.is_live(now_s, min(max_age_s, class_ttl(entry, policy)))


def serves_stale(entry: Entry, request: Request, policy: Policy, now_s: float, within_s: float) -> bool:
    """Whether the entry may still serve this request, so long after its end. What the request itself says of an
    answer's age holds for a stale one too."""
    max_age_s = min(ttl_s for _, ttl_s in _of_request(request, policy))
    if policy.freshness.enabled:
        max_age_s = min(max_age_s, class_ttl(entry, policy))
    if request.max_age_s is not None and not now_s < entry.created_at_s + request.max_age_s:
        return False
    return is_for(entry, request, policy) and entry.is_stale(now_s, max_age_s, within_s)


def _of_request(request: Request, policy: Policy) -> Bounds:
    yield "retention.ttl_s", policy.retention.ttl_s
    if request.ttl_s is not None:
        yield "ttl_s", request.ttl_s
    section = policy.freshness
    for tag, ttl_s in section.by_tag:
        if tag in request.tags:
            yield f"freshness.by_tag.{tag}", ttl_s
    if section.by_phrase:
        padded = f" {_words(request.question)} "
        for phrase, ttl_s in section.by_phrase:
            if f" {_words(phrase)} " in padded:
                yield f"freshness.by_phrase.{phrase}", ttl_s


def _shortest(bounds: list[tuple[str, float]]) -> tuple[float, str]:
    bound, ttl_s = min(bounds, key=lambda pair: pair[1])
    return ttl_s, bound


@lru_cache(maxsize=512)
def _words(text: str) -> str:
    """Folded words with one space between, without punctuation."""
    return " ".join("".join(c if c.isalnum() else " " for c in folded(text)).split())
