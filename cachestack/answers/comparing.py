"""Two answers to one question: does a user learn the same from both?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from cachestack.answers.alignment import Embed
from cachestack.answers.listing import compare_lists
from cachestack.answers.meaning import compare_meaning
from cachestack.answers.numeric import compare_numeric
from cachestack.answers.polarity import begins_with_none, first_word, repeated
from cachestack.answers.reading import Answer, read, without_label
from cachestack.answers.refusals import refuses
from cachestack.answers.sameness import Sameness, told_apart
from cachestack.answers.short import compare_short
from cachestack.answers.steps import reordered
from cachestack.answers.structured import Differs, as_json, code_lines, differing_lines, differing_texts, same_code
from cachestack.semantic.language import identify

Judging = Callable[[str | None, str, str], "bool | None"]
"""Question, answer, answer → whether they say the same, or None. It may raise: that is None."""
MAX_CHARS = 1 << 20
MAX_QUESTION_CHARS = 600
FEW_WORDS = 8


def compare(
    x: str,
    y: str,
    question: str | None = None,
    *,
    embed: Embed | None = None,
    judge: Judging | None = None,
) -> Sameness:
    """Whether two answers to `question` say the same: True, False, or None where it can't be told.

    Pure but for `embed` and `judge`. Symmetric; never raises on any text. `embed` gives a vector of length 1 for each
    of some sentences; without it fewer rewordings are recognised. `judge` is asked only where the rest does not know.
    """
    if x == y:
        return Sameness(True, "exact", 1.0)
    if y < x:
        return compare(y, x, question, embed=embed, judge=judge).swapped()
    try:
        found = _compare(x, y, question, embed)
    except Exception as failure:  # what could not be read is not known to be the same
        found = Sameness(None, "meaning", 0.5, {"unknown": f"{type(failure).__name__}: {failure}"})
    return _judged(found, x, y, question, judge) if found.same is None and judge is not None else found


def _compare(x: str, y: str, question: str | None, embed: Embed | None, depth: int = 0) -> Sameness:
    if len(x) + len(y) > MAX_CHARS:
        return Sameness(None, "normalised", 0.5, {"unknown": "too long"})
    one, other = Answer(x), Answer(y)
    blocks = one.parts.blocks or other.parts.blocks
    if not blocks and one.normal == other.normal:
        return _normalised(one, other)
    if depth == 0 and (found := _json(one, other, question, embed)) is not None:
        return found
    if blocks:
        return _code(one, other, question, embed)
    return _prose(one, other, question, embed)


def _normalised(x: Answer, y: Answer) -> Sameness:
    if x.normal or x.raw.split() == y.raw.split():
        if Counter(x.parts.inline) != Counter(y.parts.inline) and x.parts.inline and y.parts.inline:
            return told_apart("normalised", 0.5, "code", list(x.parts.inline)[:3], list(y.parts.inline)[:3])
        return Sameness(True, "normalised", 1.0)
    return Sameness(None, "normalised", 0.5, {"unknown": "no words"})


def _json(x: Answer, y: Answer, question: str | None, embed: Embed | None) -> Sameness | None:
    """None where they are not both JSON."""
    try:
        ours, theirs = as_json(x), as_json(y)
    except ValueError:
        return None
    try:
        texts = differing_texts(ours, theirs)
    except Differs as differs:
        return Sameness(False, "normalised", 0.2, {"differs": "json", **differs.evidence})
    if len(texts) > 64:
        return Sameness(None, "normalised", 0.5, {"unknown": f"{len(texts)} texts differ"})
    found = [_compare(a, b, question, embed, depth=1) for a, b in texts]
    if not found:
        return Sameness(True, "normalised", 1.0, {"as": "json"})
    worst = min(found, key=lambda s: ({False: 0, None: 1, True: 2}[s.same], s.score))
    return worst


def _code(x: Answer, y: Answer, question: str | None, embed: Embed | None) -> Sameness:
    ours, theirs = x.parts.blocks, y.parts.blocks
    if not (ours and theirs):
        if _stands_in(*((ours, y) if ours else (theirs, x))):
            return Sameness(True, "normalised", 0.9, {"as": "code"})
        return Sameness(None, "normalised", 0.5, {"unknown": "code on one side only"})
    if not same_code(ours, theirs):
        lines = next(differing_lines(ours, theirs))
        single = all(len(block.strip().splitlines()) == 1 for block in (*ours, *theirs))
        if single:
            return told_apart("normalised", 0.2, "code", *lines)
        return Sameness(None, "normalised", 0.4, {"unknown": "code", "x": lines[0], "y": lines[1]})
    if not x.prose or not y.prose:
        return Sameness(True, "normalised", 0.95, {"as": "code"})
    found = _prose(x, y, question, embed)
    if found.same is False:
        return found
    return Sameness(True, "normalised", max(0.8, found.score), {"as": "code"})


def _stands_in(blocks: Sequence[str], other: Answer) -> bool:
    """Whether one answer's code stands in the other, set as code or not, and is no small part of it."""
    code = " ".join("".join(line[2:] for line in code_lines(block)) for block in blocks).replace(" ", "")
    text = "".join(other.raw.split()).replace("`", "")
    return len(code) >= 4 and code in text and len(code) >= 0.3 * len(text)


def _prose(x: Answer, y: Answer, question: str | None, embed: Embed | None) -> Sameness:
    if not x.normal or not y.normal:
        return told_apart("normalised", 0.0, "empty", x.raw[:80], y.raw[:80])
    if _labelled_alike(x, y):
        return Sameness(True, "label", 0.98, {"label": without_label(x.normal)})
    refusals = refuses(x), refuses(y)
    if refusals[0] != refusals[1]:
        return told_apart("label", 0.0, "refusal", refusals[0], refusals[1])
    asked = (question or "")[:MAX_QUESTION_CHARS] or None
    language = _language(x, y, asked)
    if (found := _polarity(x, y, asked, language)) is not None:
        return found
    read_question = None if asked is None else read(asked, language)
    if (found := compare_numeric(x, y, read_question, language)) is not None:
        return found
    if _in_two_languages(x, y, asked):
        return Sameness(None, "meaning", 0.5, {"unknown": "languages", "x": x.language, "y": y.language})
    if all(refusals):
        return Sameness(True, "label", 0.9, {"label": "refusal"})
    order = reordered(x, y, language, asked)
    if order is True:
        return Sameness(False, "list", 0.3, {"differs": "order"})
    if order is False and (found := compare_lists(x, y, language)) is not None:
        return found
    if (found := compare_short(x, y, language, embed)) is not None:
        return found
    return compare_meaning(x, y, read_question, language, embed, unsure_order=order is None, agreed=_agreed(x, y))


def _language(x: Answer, y: Answer, question: str | None) -> str | None:
    """Of the answers where they agree or one is silent, else of the question, else of the longer one."""
    said = {x.language, y.language} - {None}
    if len(said) == 1:
        return said.pop()
    asked = identify(question) if question else None
    return asked or (x if x.num_words > y.num_words else y).language


def _labelled_alike(x: Answer, y: Answer) -> bool:
    """Not two labels of which each has a name of its own: `Price: 5`, `Weight: 5`."""
    bare = without_label(x.normal), without_label(y.normal)
    return bare[0] == bare[1] and (bare[0] == x.normal or bare[1] == y.normal)


def _in_two_languages(x: Answer, y: Answer, question: str | None) -> bool:
    """A few words, names above all, are easily taken for another language: then the question's counts."""
    if not x.language or not y.language or x.language == y.language:
        return False
    few = x if x.num_words <= y.num_words else y
    return few.num_words > FEW_WORDS or (question is not None and identify(question) == few.language)


def _polarity(x: Answer, y: Answer, question: str | None, language: str | None) -> Sameness | None:
    ours, theirs = first_word(x), first_word(y)
    if ours is not None and theirs is not None:
        if ours.polarity != theirs.polarity:
            return (
                None
                if ours.is_soft and theirs.is_soft
                else told_apart("label", 0.0, "yes or no", ours.polarity, theirs.polarity)
            )
        if ours.is_bare or theirs.is_bare:
            return Sameness(True, "label", 0.9, {"label": ours.polarity})
        return None
    said, other = (ours, y) if ours is not None else (theirs, x)
    if said is None or said.is_soft:
        return None
    if said.polarity == "yes" and begins_with_none(other):
        return told_apart("label", 0.1, "yes or no", *(("yes", "no") if ours is not None else ("no", "yes")))
    implied = repeated(other, question, language)
    if implied is None:
        return None
    if implied != said.polarity:
        return told_apart(
            "label", 0.1, "yes or no", *((said.polarity, implied) if ours is not None else (implied, said.polarity))
        )
    return Sameness(True, "label", 0.8, {"label": said.polarity}) if said.is_bare else None


def _agreed(x: Answer, y: Answer) -> bool:
    ours, theirs = first_word(x), first_word(y)
    return ours is not None and theirs is not None and ours.polarity == theirs.polarity


def _judged(found: Sameness, x: str, y: str, question: str | None, judge: Judging) -> Sameness:
    """The judge's word where it gave one; what was known without it is kept beside."""
    try:
        said = judge(question, x, y)
    except Exception as failure:  # a judge that fails has not said that they are the same
        return Sameness(None, "judge", found.score, {**found.evidence, "judge": f"{type(failure).__name__}: {failure}"})
    if said is not True and said is not False:
        return Sameness(None, "judge", found.score, {**found.evidence, "judge": "not known"})
    return Sameness(said, "judge", 0.75 if said else 0.25, {**found.evidence, "judge": said})
