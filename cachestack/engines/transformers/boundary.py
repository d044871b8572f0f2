"""Where in a prompt reuse may end: boundaries found in the messages, checked in token space.

The whole prompt is tokenised once. A boundary is clean when the text before it, tokenised apart, gives exactly the
first tokens of the whole: then those tokens are the same whatever follows. Where the two part ways earlier, the tokens
up to there are the nearest clean place. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cachestack.decisions import Reason
from cachestack.engines.base import Boundary
from cachestack.engines.transformers.template import SYSTEM_ROLES, ChatTemplate, Rendered
from cachestack.errors import RequestError
from cachestack.requests import Message, Request

Kind = Literal["system", "examples", "history", "mark"]
SENTINELS = ("\u2460", "\u2461")
MAX_HEADER_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Cut:
    """A place between messages: the first `num_messages` are stable."""

    num_messages: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Boundaries:
    """What `find_boundaries` found; the fields of `Prompt` of the same names."""

    clean: tuple[Boundary, ...] = ()
    refusal: Reason | None = None
    nearest_clean: Boundary | None = None


def cuts_of(request: Request) -> tuple[Cut, ...]:
    """Where the structure of the messages suggests boundaries, in order.

    The explicit mark where there is one, else the end of the leading system messages; and in a conversation all that
    stands before the last user message. A mark of 0 says that nothing is stable.
    """
    messages = request.messages
    if request.stable_messages == 0:
        return ()
    cuts: list[Cut] = []
    if request.stable_messages is not None:
        marked = messages[: request.stable_messages]
        kind: Kind = "mark" if all(m.role in SYSTEM_ROLES for m in marked) else "examples"
        cuts.append(Cut(len(marked), kind))
    else:
        num_system = next((i for i, m in enumerate(messages) if m.role not in SYSTEM_ROLES), len(messages))
        if num_system:
            cuts.append(Cut(num_system, "system"))
    last_user = max((i for i, m in enumerate(messages) if m.role == "user"), default=0)
    if last_user > (cuts[-1].num_messages if cuts else 0):
        cuts.append(Cut(last_user, "history"))
    return tuple(cuts)


def find_boundaries(
    request: Request, rendered: Rendered, ids: Sequence[int], template: ChatTemplate, tokenizer: Any
) -> Boundaries:
    cuts = cuts_of(request)
    if not cuts:
        return Boundaries(refusal=Reason.NO_BOUNDARY)
    clean: list[Boundary] = []
    refusal: Reason | None = None
    nearest: Boundary | None = None
    for cut in cuts:
        stable = _stable_text(request, rendered, cut, template)
        if stable is None:
            refusal = Reason.UNCLEAN_BOUNDARY
            continue
        position, is_clean = _agreement(stable, rendered, ids, tokenizer)
        boundary = Boundary(position, cut.kind) if position > 0 else None
        if not is_clean:
            refusal, nearest = Reason.UNCLEAN_BOUNDARY, boundary
        elif boundary is not None and (not clean or position > clean[-1].position):
            clean.append(boundary)
    if nearest is not None and any(b.position >= nearest.position for b in clean):
        nearest = None
    return Boundaries(tuple(clean), refusal or (None if clean else Reason.NO_BOUNDARY), nearest)


def encode(tokenizer: Any, text: str, *, add_special_tokens: bool) -> list[int]:
    """Token ids. A tokenizer that also ends every text with its EOS has that one taken off again.

    Raises RequestError for a text that is not valid Unicode.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"the prompt is not valid Unicode: a lone surrogate, {text[error.start]!r}; mend where the text comes from"
        ) from None
    ids = list(tokenizer(text, add_special_tokens=add_special_tokens, verbose=False)["input_ids"])
    eos = getattr(tokenizer, "eos_token_id", None)
    if add_special_tokens and ids and ids[-1] == eos:
        bare = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        if not bare or bare[-1] != eos:
            ids.pop()
    return ids


@dataclass(frozen=True, slots=True)
class _Stable:
    """`has_header`: the text ends with the header of the next message, right before its content."""

    text: str
    has_header: bool = False


def _stable_text(request: Request, rendered: Rendered, cut: Cut, template: ChatTemplate) -> _Stable | None:
    """The beginning of the prompt that the later messages cannot change, or None where it cannot be told."""
    head = request.messages[: cut.num_messages]
    splits_merged = rendered.mode == "merged" and head[-1].role in SYSTEM_ROLES
    if not splits_merged:
        try:
            text = template.text(request, head, rendered.mode, generation_prompt=False)
        except RequestError:
            text = ""  # some templates want a user's message, or a last one by the user
        if text and rendered.text.startswith(text):
            return _Stable(text)
    tail = request.messages[cut.num_messages :]
    if not tail:
        return None
    try:
        first, second = (
            template.text(request, (*head, *_blanked(tail, s)), rendered.mode, generation_prompt=True)
            for s in SENTINELS
        )
    except RequestError:
        return None
    shared = first[: _num_shared(first, second)]
    if not shared or not rendered.text.startswith(shared):
        return None
    return _Stable(shared, has_header=rendered.mode == "native")


def _blanked(messages: Sequence[Message], content: str) -> list[Message]:
    return [replace(m, content=content) for m in messages]


def _agreement(stable: _Stable, rendered: Rendered, ids: Sequence[int], tokenizer: Any) -> tuple[int, bool]:
    """How many first tokens of the prompt are those of the stable text alone, at most all but one, and whether the
    text ends there.

    White space at its end is tried with and without: many tokenizers split it by what follows.
    """
    best = 0
    for text in dict.fromkeys((stable.text, stable.text.rstrip())):
        alone = encode(tokenizer, text, add_special_tokens=rendered.add_special_tokens)
        agreed = _num_shared(alone, ids)
        if stable.has_header:
            agreed, alone = _without_header(agreed, alone, tokenizer)
        if agreed == len(alone):
            return min(agreed, len(ids) - 1), True
        best = max(best, agreed)
    return min(best, len(ids) - 1), False


def _without_header(agreed: int, alone: list[int], tokenizer: Any) -> tuple[int, list[int]]:
    """Back to the special token that opens the next message: what the message begins with cannot merge over it."""
    special = set(tokenizer.all_special_ids)
    for position in range(agreed - 1, max(-1, agreed - 1 - MAX_HEADER_TOKENS), -1):
        if alone[position] in special:
            return position, alone[:position]
    return agreed, alone


def _num_shared(first: Sequence[object], second: Sequence[object]) -> int:
    """How many leading items are equal."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
