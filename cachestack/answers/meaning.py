"""Free text: sentence by sentence, what each side says that the other does not, and what contradicts."""

from __future__ import annotations

from typing import Any

from cachestack.answers.alignment import Aligned, Embed, TooLong, align_answers
from cachestack.answers.contradiction import findings
from cachestack.answers.finding import Finding
from cachestack.answers.overlap import covered, keys_of_all
from cachestack.answers.quantities import equal_numbers
from cachestack.answers.reading import Answer
from cachestack.answers.sameness import Sameness
from cachestack.answers.weighing import DIFFERENT_TO, SAME_FROM, Signals, is_contained, probability
from cachestack.semantic.text import Text


def compare_meaning(
    x: Answer,
    y: Answer,
    question: Text | None,
    language: str | None,
    embed: Embed | None,
    *,
    unsure_order: bool = False,
    agreed: bool = False,
) -> Sameness:
    """Different where something contradicts, the same where little is left that only one says, else not known.

    `unsure_order`: steps may come in another order. `agreed`: both began with the same yes or no.
    """
    try:
        found = align_answers(x, y, language, embed)
    except TooLong:
        return Sameness(None, "meaning", 0.5, {"unknown": "too long"})
    said = findings(found, question, language, agreed=agreed)
    signals = _signals(found, question, said)
    if not (signals.x_weight and signals.y_weight):
        if agreed:
            return Sameness(True, "label", 0.8, {"label": "yes or no"})
        return Sameness(None, "meaning", 0.5, {"unknown": "no words that matter"})
    evidence: dict[str, Any] = {"covered": {"x": round(signals.x_covered, 3), "y": round(signals.y_covered, 3)}}
    certain = next((finding for finding in said if finding.certain), None)
    if certain is not None:
        return Sameness(False, "meaning", 0.1, {"differs": certain.kind, **certain.evidence, **evidence})
    chance = probability(signals)
    if said:
        evidence |= {"doubt": said[0].kind, **said[0].evidence}
    elif not _is_news(found, question):
        evidence |= {"unknown": "only the question's words"}
    elif (chance >= SAME_FROM or is_contained(signals)) and not unsure_order:
        return Sameness(True, "meaning", 0.6 + 0.4 * min(signals.x_covered, signals.y_covered), evidence)
    if chance <= DIFFERENT_TO:
        return Sameness(False, "meaning", chance, {"differs": "content", **evidence})
    return Sameness(None, "meaning", chance, evidence)


_YES_OR_NO = frozenset({"can", "is", "should", "will"})


def _is_news(found: Aligned, question: Text | None) -> bool:
    """Whether both say more than the question's words. To be asked whether, those are enough."""
    if question is None or not question.slots.isdisjoint(_YES_OR_NO):
        return True
    asked = frozenset(key for t in question.tokens for key in t.keys)
    return all(any(asked.isdisjoint(t.keys) for text in side.whole for t in text.matter) for side in (found.x, found.y))


def _signals(found: Aligned, question: Text | None, said: list[Finding]) -> Signals:
    given = frozenset() if question is None else frozenset(key for t in question.tokens for key in t.keys)
    keys_x = keys_of_all(found.x.whole) | equal_numbers(found.y.whole, found.x.whole)
    keys_y = keys_of_all(found.y.whole) | equal_numbers(found.x.whole, found.y.whole)
    x, x_left = _covered(found.x.texts, keys_y, given)
    y, y_left = _covered(found.y.texts, keys_x, given)
    whole_x, whole_y = _covered(found.x.whole, keys_y, given)[1], _covered(found.y.whole, keys_x, given)[1]
    return Signals(
        x_covered=1 - (x_left - x) / whole_x if whole_x else 1.0,
        y_covered=1 - (y_left - y) / whole_y if whole_y else 1.0,
        x_weight=whole_x,
        y_weight=whole_y,
        residual=min(x_left - x, y_left - y) / max(1.0, min(x_left, y_left)),
        copied=1 - max(len(s.texts) / max(1, len(s.whole)) for s in (found.x, found.y)),
        negated=any(f.kind == "negation" for f in said),
        doubted=any(f.kind != "negation" for f in said),
    )


def _covered(texts: tuple[Text, ...], keys: frozenset[str], given: frozenset[str]) -> tuple[float, float]:
    pairs = [covered(text, keys, given) for text in texts]
    return sum(found for found, _ in pairs), sum(total for _, total in pairs)
