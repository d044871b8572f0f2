"""Pairs of requests with a judgement: would the answer to the first serve the second, and should it?

For each pair a fresh partition: `a` asked and answered, `b` asked. Both go through the generators that `chat` runs
(`semantic_lookup`, `embed_question`); only their effects are performed here, from one entry and from vectors that were
computed in batches before. No language model is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachestack.comparing import entry_as_if_answered
from cachestack.decisions import Hit, Reason
from cachestack.effects import Embedding
from cachestack.errors import EncoderError, InputFileError, RequestError
from cachestack.keys import contract_of
from cachestack.policy import Policy
from cachestack.requests import Message, Request, as_messages
from cachestack.semantic.layer import Asked, bypass_reason, embed_question, partition_of, semantic_lookup
from cachestack.semantic.single import run_with_one_entry

if TYPE_CHECKING:
    from cachestack.semantic.base import Encoder

Report = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is."""

ENCODE_AT_ONCE = 512
REPORT_EVERY = 256


@dataclass(frozen=True, slots=True)
class Pair:
    """`a` was asked first and answered, `b` is asked now. `place` says where it was read, as `file:line`."""

    id: str
    a: tuple[Message, ...]
    b: tuple[Message, ...]
    same_answer: bool
    category: str
    place: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the layer decided about a pair."""

    pair: Pair
    served: bool
    reason: Reason
    detail: Mapping[str, Any]

    @property
    def right(self) -> bool:
        return self.served == self.pair.same_answer


@dataclass(frozen=True, slots=True)
class Share:
    """`rate` is 0 where there is nothing to count."""

    n: int
    served: int

    @property
    def rate(self) -> float:
        return self.served / self.n if self.n else 0.0


def read_pairs(path: str | Path, limit: int | None = None) -> tuple[Pair, ...]:
    """The pairs of a JSONL file, at most `limit`. Raises InputFileError, naming file and line."""
    try:
        with Path(path).open(encoding="utf-8-sig") as lines:
            pairs = tuple(_first(_parsed(lines, str(path)), limit))
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path} cannot be read: {error}") from error
    if not pairs:
        raise InputFileError(f"{path} holds no pairs; each line needs the keys a, b and same_answer")
    return pairs


def embed_all(texts: Iterable[str], encoder: Encoder | None, report: Report) -> dict[str, Embedding | Reason]:
    """Each distinct text's embedding, or why there is none, as `Performer.embed` would say."""
    distinct = sorted(set(texts), key=lambda text: (len(text), text))
    if encoder is None:
        return dict.fromkeys(distinct, Reason.NO_ENCODER)
    found: dict[str, Embedding | Reason] = {}
    for start in range(0, len(distinct), ENCODE_AT_ONCE):
        batch = distinct[start : start + ENCODE_AT_ONCE]
        fitting = [text for text in batch if encoder.fits_window(text)]
        found |= dict.fromkeys(batch, Reason.BEYOND_WINDOW) | _encoded(fitting, encoder)
        report("encode", start + len(batch), len(distinct))
    return found


def judge_pairs(
    pairs: Sequence[Pair], policy: Policy, encoder: Encoder | None, report: Report = lambda *_: None
) -> tuple[Outcome, ...]:
    """What the semantic layer decides about each pair, in order."""
    asked = (message.content for pair in pairs for message in (pair.a[-1], pair.b[-1]) if message.role == "user")
    embeddings = embed_all(asked, encoder, report)
    languages = encoder.languages if encoder is not None else frozenset[str]()
    outcomes = []
    for number, pair in enumerate(pairs):
        outcomes.append(_outcome(pair, policy, languages, embeddings, f"pair {number}"))
        if number % REPORT_EVERY == 0 or number + 1 == len(pairs):
            report("decide", number + 1, len(pairs))
    return tuple(outcomes)


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts of should-hit pairs and traps, and by category, as JSON-able values.

    A category that holds both kinds is counted in two parts, named for them.
    """
    by_category: dict[tuple[str, bool], list[Outcome]] = {}
    for outcome in outcomes:
        by_category.setdefault((outcome.pair.category, outcome.pair.same_answer), []).append(outcome)
    categories = {}
    for (category, should_hit), some in sorted(by_category.items()):
        mixed = (category, not should_hit) in by_category
        name = f"{category} ({'should hit' if should_hit else 'traps'})" if mixed else category
        share = _share(some)
        categories[name] = {"n": share.n, "served": share.served, "rate": share.rate, "should_hit": should_hit}
    return {
        "should_hit": _counts(o for o in outcomes if o.pair.same_answer),
        "traps": _counts(o for o in outcomes if not o.pair.same_answer),
        "by_category": categories,
    }


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
    pair: Pair,
    policy: Policy,
    languages: frozenset[str],
    embeddings: Mapping[str, Embedding | Reason],
    tenant: str,
) -> Outcome:
    """The tenant is the pair's own, and so is its partition."""
    first, second = (Request(messages, tenant=tenant) for messages in (pair.a, pair.b))
    for request in (first, second):
        reason = bypass_reason(request, policy.semantic)
        if reason is not None:
            return Outcome(pair, False, reason, {})
    answered, asked = _asked(first, policy), _asked(second, policy)
    stored = run_with_one_entry(embed_question(first, policy, languages), None, embeddings.__getitem__)
    entry = entry_as_if_answered(answered, stored, now_s=0.0)
    found = run_with_one_entry(semantic_lookup(asked, policy, languages, 0.0), entry, embeddings.__getitem__)
    return Outcome(pair, isinstance(found, Hit), found.reason, found.detail)


def _asked(request: Request, policy: Policy) -> Asked:
    return Asked(request, contract_of(request, request.model), partition_of(request, policy.semantic))


def _encoded(texts: list[str], encoder: Encoder) -> dict[str, Embedding | Reason]:
    """One batch; where it fails, text by text, so that one bad text costs only itself."""
    from cachestack.semantic.vectors import to_bytes

    if not texts:
        return {}
    try:
        vectors = encoder.encode(texts)
    except EncoderError:
        if len(texts) == 1:
            return {texts[0]: Reason.ENCODER_FAILED}
        half = len(texts) // 2
        return _encoded(texts[:half], encoder) | _encoded(texts[half:], encoder)
    return {text: Embedding(to_bytes(vector), encoder.fingerprint) for text, vector in zip(texts, vectors, strict=True)}


def _parsed(lines: Iterable[str], path: str) -> Iterator[Pair]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _pair(line, f"{path}:{number}")


def _pair(line: str, place: str) -> Pair:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{place}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise InputFileError(f"{place}: a line must be an object with the keys a, b and same_answer")
    missing = [key for key in ("a", "b", "same_answer") if key not in row]
    if missing:
        raise InputFileError(f"{place}: the keys {', '.join(missing)} are missing; needed: a, b, same_answer")
    if not isinstance(row["same_answer"], bool):
        raise InputFileError(f"{place}: same_answer must be true or false, not {row['same_answer']!r}")
    return Pair(
        id=str(row.get("id", place)),
        a=_messages(row["a"], "a", place),
        b=_messages(row["b"], "b", place),
        same_answer=row["same_answer"],
        category=str(row.get("category", "")) or "none",
        place=place,
    )


def _messages(value: Any, key: str, place: str) -> tuple[Message, ...]:
    try:
        return Request(as_messages(value)).messages
    except RequestError as error:
        raise InputFileError(f"{place}: {key}: {error}") from error


def _first(pairs: Iterator[Pair], limit: int | None) -> Iterator[Pair]:
    for number, pair in enumerate(pairs):
        if limit is not None and number >= limit:
            return
        yield pair


def _share(outcomes: Sequence[Outcome]) -> Share:
    return Share(len(outcomes), sum(o.served for o in outcomes))


def _counts(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    share = _share(tuple(outcomes))
    return {"n": share.n, "served": share.served, "rate": share.rate}
