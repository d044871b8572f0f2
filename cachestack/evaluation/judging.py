"""What the semantic layer decides about pairs: would the answer to the first serve the second?

For each pair a fresh partition: `a` asked and answered, `b` asked. Both go through the generators that `chat` runs
(`semantic_lookup`, `embed_question`); only their effects are performed here, from one entry and from vectors that were
computed in batches before. No language model is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cachestack.comparing import entry_as_if_answered
from cachestack.decisions import Hit, Reason
from cachestack.effects import Embedding
from cachestack.errors import EncoderError
from cachestack.evaluation.pairs import Pair
from cachestack.keys import contract_of
from cachestack.policy import Policy
from cachestack.requests import Request
from cachestack.semantic.embedding import embed_texts
from cachestack.semantic.layer import Asked, bypass_reason, embed_question, partition_of, semantic_lookup
from cachestack.semantic.single import run_with_one_entry
from cachestack.semantic.verifiers.known import shelf_of
from cachestack.semantic.verifiers.packing import StatesOf, languages_served
from cachestack.semantic.verifiers.shelf import VerifierShelf

if TYPE_CHECKING:
    from cachestack.semantic.base import Encoder, StatesPacker

Report = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is."""

Embeddings = Mapping[str, Embedding | Reason]

ENCODE_AT_ONCE = 512
REPORT_EVERY = 256


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the layer decided about a pair, and in how many milliseconds, without embedding; 0 where it was not asked
    (a bypass)."""

    pair: Pair
    served: bool
    reason: Reason
    detail: Mapping[str, Any]
    ms: float = 0.0

    @property
    def right(self) -> bool:
        return self.served == self.pair.same_answer


def embed_all(
    texts: Iterable[str], encoder: Encoder | None, report: Report, packer: StatesPacker | None = None
) -> dict[str, Embedding | Reason]:
    """Each distinct text's embedding, or why there is none, as `Performer.embed` would say."""
    distinct = sorted(set(texts), key=lambda text: (len(text), text))
    if encoder is None:
        return dict.fromkeys(distinct, Reason.NO_ENCODER)
    packer = packer or StatesOf(encoder)
    found: dict[str, Embedding | Reason] = {}
    for start in range(0, len(distinct), ENCODE_AT_ONCE):
        batch = distinct[start : start + ENCODE_AT_ONCE]
        fitting = [text for text in batch if encoder.fits_window(text)]
        found |= dict.fromkeys(batch, Reason.BEYOND_WINDOW) | _encoded(fitting, encoder, packer)
        report("encode", start + len(batch), len(distinct))
    return found


def embed_pairs(
    pairs: Iterable[Pair],
    encoder: Encoder | None,
    report: Report = lambda *_: None,
    packer: StatesPacker | None = None,
) -> dict[str, Embedding | Reason]:
    """The embeddings that deciding about these pairs may ask for."""
    asked = (message.content for pair in pairs for message in (pair.a[-1], pair.b[-1]) if message.role == "user")
    return embed_all(asked, encoder, report, packer)


def judge_pairs(
    pairs: Sequence[Pair],
    policy: Policy,
    encoder: Encoder | None,
    report: Report = lambda *_: None,
    packer: StatesPacker | None = None,
) -> tuple[Outcome, ...]:
    """What the semantic layer decides about each pair, in order."""
    return decide_pairs(pairs, policy, languages_of(encoder), embed_pairs(pairs, encoder, report, packer), report)


def decide_pairs(
    pairs: Sequence[Pair],
    policy: Policy,
    encoder_languages: frozenset[str],
    embeddings: Embeddings,
    report: Report = lambda *_: None,
    stage: str = "decide",
    verifiers: VerifierShelf | None = None,
) -> tuple[Outcome, ...]:
    """As `judge_pairs`, with embeddings that are there: the same pairs can be judged again under another policy."""
    outcomes = []
    shelf = shelf_of() if verifiers is None else verifiers
    for number, pair in enumerate(pairs):
        outcomes.append(_outcome(pair, policy, encoder_languages, embeddings, f"pair {number}", shelf))
        if number % REPORT_EVERY == 0 or number + 1 == len(pairs):
            report(stage, number + 1, len(pairs))
    return tuple(outcomes)


def languages_of(encoder: Encoder | None) -> frozenset[str]:
    return languages_served(encoder)


def mistake_rows(outcomes: Iterable[Outcome]) -> Iterator[dict[str, Any]]:
    """The pairs that were served and should not have been, or the other way round, with the evidence."""
    for outcome in outcomes:
        if not outcome.right:
            pair = outcome.pair
            yield {
                "place": pair.place,
                "id": pair.id,
                "category": pair.category,
                "mistake": "served" if outcome.served else "missed",
                "a": pair.a[-1].content,
                "b": pair.b[-1].content,
                "reason": outcome.reason.value,
                "detail": dict(outcome.detail),
            }


def _outcome(
    pair: Pair, policy: Policy, languages: frozenset[str], embeddings: Embeddings, tenant: str, verifiers: VerifierShelf
) -> Outcome:
    """The tenant is the pair's own, and so is its partition."""
    first, second = (Request(messages, tenant=tenant) for messages in (pair.a, pair.b))
    for request in (first, second):
        reason = bypass_reason(request, policy.semantic)
        if reason is not None:
            return Outcome(pair, False, reason, {})
    answered, asked = _asked(first, policy), _asked(second, policy)
    stored = run_with_one_entry(
        embed_question(first, policy, languages), None, embeddings.__getitem__, verifiers.perform
    )
    entry = entry_as_if_answered(answered, stored, policy, now_s=0.0)
    began = perf_counter()
    found = run_with_one_entry(
        semantic_lookup(asked, policy, languages, 0.0), entry, embeddings.__getitem__, verifiers.perform
    )
    ms = 1000 * (perf_counter() - began)
    return Outcome(pair, isinstance(found, Hit), found.reason, found.detail, ms)


def _asked(request: Request, policy: Policy) -> Asked:
    return Asked(request, contract_of(request, request.model), partition_of(request, policy.semantic))


def _encoded(texts: list[str], encoder: Encoder, packer: StatesPacker | None) -> dict[str, Embedding | Reason]:
    """One batch; where it fails, in halves, so that one bad text costs only itself."""
    if not texts:
        return {}
    try:
        return dict(zip(texts, embed_texts(encoder, texts, packer), strict=True))
    except EncoderError:
        if len(texts) == 1:
            return {texts[0]: Reason.ENCODER_FAILED}
        half = len(texts) // 2
        return _encoded(texts[:half], encoder, packer) | _encoded(texts[half:], encoder, packer)
