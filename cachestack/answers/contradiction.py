"""What in two answers says that they contradict each other, sentence by sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cachestack.answers.alignment import Aligned
from cachestack.answers.finding import Facts, Finding, Pair, pair_of
from cachestack.answers.guarding import guarded
from cachestack.answers.listing import lacks_item
from cachestack.answers.naming import other_names
from cachestack.answers.negating import negation
from cachestack.answers.overlap import keys_of_all
from cachestack.answers.quantities import Quantity, contradiction, counts_something, implied, lone, named
from cachestack.answers.replacing import limited, replaced, turned_round
from cachestack.semantic.text import Text
from cachestack.semantic.words import fold

FEW = 3
"""Sentences of either answer up to which two numbers contradict each other wherever they stand."""
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*(?!\w)")


def findings(found: Aligned, question: Text | None, language: str | None, *, agreed: bool = False) -> list[Finding]:
    """Certain ones first. `agreed`: both began with the same yes or no, so that a `not` in the first sentence is said
    already."""
    facts = _facts(found, question, language)
    done = [*_numbers(found, question), *_code(found)]
    for i, j in found.pairs:
        pair = pair_of(found.x.texts[i], found.y.texts[j], found.x.units[i], found.y.units[j])
        if not (agreed and (i == 0 or j == 0)):
            done += negation(pair)
        done += guarded(pair, facts)
        done += other_names(pair, facts)
        done += turned_round(pair)
        done += limited(pair)
        done += replaced(pair, facts)
        done += _items(pair, facts)
    return sorted(done, key=lambda finding: not finding.certain)


def _facts(found: Aligned, question: Text | None, language: str | None) -> Facts:
    return Facts(
        keys_x=keys_of_all(found.x.whole),
        keys_y=keys_of_all(found.y.whole),
        prose_x=fold(found.x.prose),
        prose_y=fold(found.y.prose),
        asked=frozenset() if question is None else frozenset(key for t in question.tokens for key in t.keys),
        is_copied=all(len(side.whole) > len(side.units) for side in (found.x, found.y)),
        language=language,
    )


def _numbers(found: Aligned, question: Text | None) -> Iterable[Finding]:
    asked = [] if question is None else named([question])
    whole_x, whole_y = named(found.x.whole), named(found.y.whole)
    said_x, said_y = ([*asked, *(q for t in side.whole for q in implied(t))] for side in (found.x, found.y))
    for i, j in found.pairs:
        ours = lone(named([found.x.texts[i]]), [*whole_y, *said_y])
        theirs = lone(named([found.y.texts[j]]), [*whole_x, *said_x])
        if (conflict := contradiction(ours, theirs)) is not None:
            yield Finding("number", True, _written(*conflict))
            return
    ours, theirs = lone(whole_x, [*whole_y, *said_y]), lone(whole_y, [*whole_x, *said_x])
    if (conflict := contradiction(ours, theirs)) is not None:
        few = max(len(found.x.whole), len(found.y.whole)) <= FEW and len(ours) == len(theirs) == 1
        yield Finding("number", few and counts_something(conflict[0]), _written(*conflict))


def _written(a: Quantity, b: Quantity) -> dict[str, str]:
    return {"x": a.written, "y": b.written}


def _code(found: Aligned) -> Iterable[Finding]:
    """Code between backquotes, and options of commands, that the other answer has nowhere."""
    mine = [code for code in found.x.inline if code not in found.y.prose]
    its = [code for code in found.y.inline if code not in found.x.prose]
    if mine and its:
        yield Finding("code", True, {"x": mine[:3], "y": its[:3]})
    ours, theirs = ({m[0] for unit in side.units for m in _FLAG.finditer(unit.raw)} for side in (found.x, found.y))
    if ours != theirs:
        evidence = {"x": sorted(ours - theirs)[:3], "y": sorted(theirs - ours)[:3]}
        yield Finding("option", bool(ours - theirs and theirs - ours), evidence)


def _items(pair: Pair, facts: Facts) -> Iterable[Finding]:
    """An item that one of two enumerations leaves out, and the other answer says nowhere else."""
    missing = lacks_item(pair.unit_x.raw, pair.unit_y.raw, facts.keys_x, facts.keys_y, facts.language)
    if missing is not None:
        yield Finding("items", True, {"x": missing[0], "y": missing[1]})
