"""Where in a prompt reuse may end: boundaries found in the messages, checked in token space.

The whole prompt is tokenised once, and the tokenizer says which characters each token stands for. A boundary is clean
when no token crosses it. Its position is then the last one before it up to which the tokens are the same *whatever
follows*; that is also the nearest clean place where a token does cross it::

    prompt     <|im_start|>system⏎Be brief.<|im_end|>⏎│<|im_start|>user⏎Hi…     a special token: certain at once
    prompt     You are a help desk. How do I│ re┊set my password?               " reset" crosses: tried, see below

Where a special token of the template stands at the boundary nothing can merge over it. Elsewhere other continuations
are tried on the last words before it (`Continuations`). Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from cachestack.decisions import Reason
from cachestack.engines.base import Boundary
from cachestack.engines.transformers.continuations import Continuations
from cachestack.engines.transformers.template import SYSTEM_ROLES, ChatTemplate, Rendered
from cachestack.engines.transformers.tokenised import Tokenised, tokenise
from cachestack.engines.transformers.tokenised import encode as encode
from cachestack.errors import RequestError
from cachestack.requests import Request

Kind = Literal["system", "examples", "history", "mark"]
SENTINELS = ("\u2460", "\u2461", "\u2462", "\u2463")
MAX_HEADER_TOKENS = 8
MAX_RESYNC_TOKENS = 16
WINDOWS = (8, 64, 512)


@dataclass(frozen=True, slots=True)
class Cut:
    """A place between messages: the first `num_messages` are stable."""

    num_messages: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Boundaries:
    """What a `BoundaryFinder` found; the fields of `Prompt` of the same names."""

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


class BoundaryFinder:
    """Finds boundaries in the prompts of one tokenizer and template."""

    def __init__(self, tokenizer: Any, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._continuations = Continuations(tokenizer)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self._added = {int(i): token.content for i, token in added.items() if not token.single_word}
        texts = sorted(self._added.values())
        self._extended = {a for a, b in pairwise(texts) if b.startswith(a)}
        """Added tokens that another begins with: what follows may make that other one of them."""

    def find(self, request: Request, rendered: Rendered, tokens: Tokenised) -> Boundaries:
        cuts = cuts_of(request)
        if not cuts:
            return Boundaries(refusal=Reason.NO_BOUNDARY)
        clean: list[Boundary] = []
        refusal: Reason | None = None
        nearest: Boundary | None = None
        for cut in cuts:
            stable = self._stable_text(request, rendered, cut)
            position, is_clean = (0, False) if stable is None else self._place(request, rendered, tokens, cut, stable)
            boundary = Boundary(position, cut.kind) if position > 0 else None
            if not is_clean:
                refusal, nearest = Reason.UNCLEAN_BOUNDARY, boundary or nearest
            elif boundary is not None and (not clean or position > clean[-1].position):
                clean.append(boundary)
        if nearest is not None and any(b.position >= nearest.position for b in clean):
            nearest = None
        return Boundaries(tuple(clean), refusal or (None if clean else Reason.NO_BOUNDARY), nearest)

    def _stable_text(self, request: Request, rendered: Rendered, cut: Cut) -> _Stable | None:
        """The beginning of the prompt that the later messages cannot change, or None where it cannot be told."""
        head = request.messages[: cut.num_messages]
        splits_merged = rendered.mode == "merged" and head[-1].role in SYSTEM_ROLES
        if not splits_merged:
            try:
                text = self._template.text(request, head, rendered.mode, generation_prompt=False)
            except RequestError:
                text = ""  # some templates want a user's message, or a last one by the user
            if text and rendered.text.startswith(text):
                return _Stable(text)
        shared = self._shared_text(request, rendered, cut)
        return _Stable(shared, has_header=rendered.mode == "native") if shared else None

    def _shared_text(self, request: Request, rendered: Rendered, cut: Cut) -> str | None:
        """What stays of the prompt where all messages after the cut say something else: the head, and the header of
        the next message. None where there are none, or the template refuses."""
        blanked = self._blanked(request, rendered, cut, before="")
        if blanked is None:
            return None
        text, _ = blanked
        return rendered.text[: _num_shared(text, rendered.text)]

    def _strips(self, request: Request, rendered: Rendered, cut: Cut, place: int) -> bool:
        """Whether the template takes white space from the beginning of the message whose text begins at `place`."""
        blanked = self._blanked(request, rendered, cut, before=" \n")
        return blanked is not None and blanked[0][place:].startswith(blanked[1])

    def _blanked(self, request: Request, rendered: Rendered, cut: Cut, *, before: str) -> tuple[str, str] | None:
        """The prompt with a sentinel for each later message, and the sentinel: one that is in none of them."""
        head, tail = request.messages[: cut.num_messages], request.messages[cut.num_messages :]
        free = (s for s in SENTINELS if not any(s in m.content for m in tail))
        if not tail or (sentinel := next(free, None)) is None:
            return None
        others = (replace(m, content=before + sentinel) for m in tail)
        try:
            return self._template.text(request, (*head, *others), rendered.mode, generation_prompt=True), sentinel
        except RequestError:
            return None

    def _place(
        self, request: Request, rendered: Rendered, tokens: Tokenised, cut: Cut, stable: _Stable
    ) -> tuple[int, bool]:
        """The position up to which the stable text's tokens are the same whatever follows, at most all but one, and
        whether no token crosses its end. White space at the end may belong to a token that does: many tokenizers split
        it by what follows."""
        if tokens.spans is None:
            position, is_clean = self._agreement(stable, rendered, tokens)
        else:
            ends = (len(stable.text), len(stable.text.rstrip()))
            position, is_clean = tokens.num_within(ends[0]), not all(tokens.is_cut(end) for end in ends)
        if stable.has_header and (opening := self._opening(rendered, tokens, position)) is not None:
            position, is_clean = opening, True
        certain = self._certain(request, rendered, tokens, cut, stable, position)
        return min(position, certain, len(tokens.ids) - 1), is_clean and certain > 0

    def _opening(self, rendered: Rendered, tokens: Tokenised, position: int) -> int | None:
        """The special token that opens the next message: what the message begins with cannot merge over it."""
        special = set(self._tokenizer.all_special_ids)
        header = range(position - 1, max(-1, position - 1 - MAX_HEADER_TOKENS), -1)
        found = (i for i in header if tokens.ids[i] in special and self._written(rendered, tokens, i) is not None)
        return next(found, None)

    def _certain(
        self, request: Request, rendered: Rendered, tokens: Tokenised, cut: Cut, stable: _Stable, position: int
    ) -> int:
        """How many of the first tokens do not depend on what follows; more than `position` is not looked for."""
        ids, tail = tokens.ids, request.messages[cut.num_messages :]
        if position == 0 or not tail or self._closes(rendered, tokens, position - 1):
            return position
        opens = self._written(rendered, tokens, position)
        if opens is not None and not any(opens in m.content for m in tail):  # so the template has written it
            return position
        shared = stable.text if stable.has_header else self._shared_text(request, rendered, cut) or stable.text
        if tokens.spans is None:
            return tokens.num_added + _num_shared(self._continuations.shared(shared).ids, ids[tokens.num_added :])
        within = range(tokens.num_within(len(shared)) - 1, tokens.num_added - 1, -1)
        behind = [i for i in within if ids[i] in self._added]
        last = next((i for i in behind if self._written(rendered, tokens, i) is not None), -1)
        if last >= position:
            return position
        first = next((i for i in behind if self._closes(rendered, tokens, i)), None)
        start = 0 if first is None else tokens.spans[first][0]
        stripped = self._strips(request, rendered, cut, len(shared))
        return self._certain_in_text(
            shared, tokens, start, tokens.num_added if first is None else first, stripped=stripped
        )

    def _written(self, rendered: Rendered, tokens: Tokenised, index: int) -> str | None:
        """The text of the token, if it is one of those that are taken out of a text before all else. Not by its id
        alone: the token for unknown characters may be among them, and stands for other text then."""
        content = self._added.get(tokens.ids[index]) if index < len(tokens.ids) else None
        if content is None or tokens.spans is None:
            return content if content != getattr(self._tokenizer, "unk_token", None) else None
        start, end = tokens.spans[index]
        return content if rendered.text[start:end].strip() == content.strip() else None

    def _closes(self, rendered: Rendered, tokens: Tokenised, index: int) -> bool:
        """Whether it is such a token, and ends where it ends whatever follows."""
        written = self._written(rendered, tokens, index)
        return written is not None and written not in self._extended

    def _certain_in_text(self, text: str, tokens: Tokenised, start: int, first: int, *, stripped: bool) -> int:
        """The same for plain text from `start`, where token `first` begins: looked for in the last words, if their
        tokens by themselves are those of the prompt, else in more."""
        assert tokens.spans is not None
        for num_chars in WINDOWS:
            if len(text) - num_chars <= start:
                break
            index = tokens.num_within(len(text) - num_chars)
            begin = tokens.spans[min(index, len(tokens.ids) - 1)][0]
            window = self._continuations.shared(text[begin:], stripped=stripped)
            if (found := _resynchronised(window, tokens, begin)) is not None:
                return found
        window = self._continuations.shared(text[start:], stripped=stripped)
        return first + _num_shared(window.ids, tokens.ids[first:])

    def _agreement(self, stable: _Stable, rendered: Rendered, tokens: Tokenised) -> tuple[int, bool]:
        """For a tokenizer without spans: how many first tokens are those of the stable text alone, and whether the
        text ends there."""
        best = 0
        for text in dict.fromkeys((stable.text, stable.text.rstrip())):
            alone = tokenise(self._tokenizer, text, add_special_tokens=rendered.add_special_tokens).ids
            agreed = _num_shared(alone, tokens.ids)
            if agreed == len(alone):
                return agreed, True
            best = max(best, agreed)
        return best, False


@dataclass(frozen=True, slots=True)
class _Stable:
    """`has_header`: the text ends with the header of the next message, right before its content."""

    text: str
    has_header: bool = False


def _resynchronised(window: Tokenised, tokens: Tokenised, begin: int) -> int | None:
    """Where in the prompt the tokens of a window end, which begins at character `begin` of the prompt's text.

    Its first tokens may differ from the prompt's, as it begins within a word or gets a space of its own. None where
    they are never the same from some token on, or for one token only, which may be chance.
    """
    assert window.spans is not None
    found = (
        (j, _num_shared(window.ids[k:], tokens.ids[j:]))
        for k in range(1, min(len(window.ids) - 1, MAX_RESYNC_TOKENS))
        for j in tokens.starting_at(begin + window.spans[k][0])
    )
    return max((j + agreed for j, agreed in found if agreed > 1), default=None)


def _num_shared(first: Sequence[object], second: Sequence[object]) -> int:
    """How many leading items are equal. By halves: comparing slices is faster than items, by far in long texts."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
