"""What can be said of each prompt by itself: two BOS, too much context, text that stands in it twice, a beginning that
is too short to keep, and, where a log has one prompt only, values that will surely change."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from cachestack.lint import excerpts
from cachestack.lint.advice import advise
from cachestack.lint.patterns import PATTERNS, PLACEHOLDER, STATIC_CUE
from cachestack.lint.rendering import SYSTEM_ROLES, Prompt, Span
from cachestack.lint.report import Divergence

KNOWN_BOS = ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "[BOS]")
MIN_PARAGRAPH_WORDS = 12
NEARLY = 0.8
SKETCH = 6
GAP = re.compile(r"(?<!\s)\s*\n[^\S\n]*\n\s*")  # from a run's first blank only: else a long run takes its square
WORDS = re.compile(r"\w+")
PLACEHOLDER_KINDS = {
    "date": "date", "today": "date", "current_date": "date", "now": "timestamp", "datetime": "timestamp",
    "timestamp": "timestamp", "time": "time", "current_time": "time", "uuid": "uuid", "session_id": "identifier",
    "request_id": "identifier", "trace_id": "identifier", "locale": "language", "language": "language",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A finding of one kind in one prompt, and the tokens it costs there."""

    kind: str
    number: int
    tokens: int
    shown: Divergence
    observed: bool = True


def double_bos(number: int, prompt: Prompt, bos: str | None) -> Place | None:
    """The text begins with BOS twice, or with BOS where the tokenizer adds its own."""
    names = tuple(dict.fromkeys((bos, *KNOWN_BOS) if bos else KNOWN_BOS))
    text = prompt.text.lstrip()
    name = next((b for b in names if text.startswith(b)), None)
    if name is None:
        return None
    ids = prompt.tokens.ids
    is_twice = text[len(name) :].lstrip().startswith(name)
    is_added = name == bos and len(ids) > 1 and ids[0] == ids[1] and prompt.tokens.starts[1] == 0
    if not (is_twice or is_added):
        return None
    proposal = advise("double_bos", value=f"“{name}”")
    return Place("double_bos", number, 1, _shown(prompt, 0, len(name), proposal))


def short_prefixes(
    prompts: Sequence[Prompt], families: Sequence[int], reusable: Sequence[int], min_tokens: int, unit: str
) -> Iterator[Place]:
    """System messages that several prompts share and that end before `min_tokens`, with nothing after them to share."""
    known: set[tuple[int, tuple[str, ...]]] = set()
    for number, (prompt, family) in enumerate(zip(prompts, families, strict=True)):
        head = [s for s in prompt.spans if s.role in SYSTEM_ROLES]
        if not head or head[-1].number != len(head) - 1:
            continue
        tokens = prompt.tokens.index_at(head[-1].end)
        system = (family, tuple(prompt.text[s.start : s.end] for s in head))
        if tokens >= min_tokens or reusable[number] >= min_tokens:
            continue
        if system in known:
            proposal = advise("short_prefix", limit=f"prefix.min_tokens: {min_tokens} {unit}")
            shown = _shown(prompt, head[0].start, head[-1].end, proposal, position=tokens)
            yield Place("short_prefix", number, tokens, shown)
        known.add(system)


def oversized(prompts: Sequence[Prompt], reusable: Sequence[int], max_tokens: int, unit: str) -> Iterator[Place]:
    """A message, or a paragraph of a text, that is over the budget, is most of its prompt, and is in no other one."""
    seen = Counter(p.text[s.start : s.end] for p in prompts for s in _units(p) if s.end - s.start > max_tokens)
    for number, prompt in enumerate(prompts):
        for span in _units(prompt):
            tokens = prompt.num_between(span.start, span.end)
            if tokens <= max_tokens or 2 * tokens < prompt.num_tokens or seen[prompt.text[span.start : span.end]] > 1:
                continue
            over = min(tokens - max_tokens, prompt.num_between(span.start, span.end, beyond=reusable[number]))
            proposal = advise("oversized", where=span.name, lost=f"{tokens - max_tokens:,} {unit}")
            if over:
                yield Place("oversized", number, over, _shown(prompt, span.start, span.end, proposal))


def _units(prompt: Prompt) -> list[Span]:
    if prompt.logged.text is None:
        return [s for s in prompt.spans if s.role != "tools"]
    return [Span(start, end, "text", 0) for start, end in _blocks(prompt.text, 0, len(prompt.text))]


class Repetitions:
    """Paragraphs that stand in a prompt twice, word for word or nearly (four fifths of their triples of words).

    Turns of a conversation may say the same again: at least one of the two stands in the system messages, in a tool's
    result, or in the last message, or both in one message.
    """

    def __init__(self) -> None:
        self._triples: dict[str, tuple[frozenset[int], tuple[int, ...]]] = {}

    def find(self, number: int, prompt: Prompt, reusable: int, min_tokens: int) -> Place | None:
        best: Place | None = None
        last = max((s.number for s in prompt.spans), default=0)
        kept: list[tuple[Span, frozenset[int]]] = []
        by_sketch: dict[int, list[int]] = defaultdict(list)
        total = 0
        for span, start, end in _paragraphs(prompt):
            triples, sketch = self._triples_of(prompt.text[start:end])
            if not triples:
                continue
            candidates = {n for value in sketch for n in by_sketch[value]}
            is_again = any(
                _similar(triples, kept[n][1]) and _counts(kept[n][0], span, last) for n in sorted(candidates)
            )
            if is_again:
                whole = prompt.num_between(start, end)
                if whole >= min_tokens:
                    total += max(1, prompt.num_between(start, end, beyond=reusable))
                    proposal = advise("repeated", where=span.name)
                    best = best or Place("repeated", number, 0, _shown(prompt, start, end, proposal))
            else:
                for value in sketch:
                    by_sketch[value].append(len(kept))
                kept.append((span, triples))
        return None if best is None else Place("repeated", number, total, best.shown)

    def _triples_of(self, text: str) -> tuple[frozenset[int], tuple[int, ...]]:
        """The hashes of its triples of words, and the least few of them: what is alike has one of these in common."""
        if text not in self._triples:
            if len(self._triples) > 100_000:
                self._triples.clear()
            words = WORDS.findall(text.casefold())
            triples = zip(words, words[1:], words[2:], strict=False) if len(words) >= MIN_PARAGRAPH_WORDS else ()
            hashes = frozenset(crc32(" ".join(triple).encode()) for triple in triples)
            self._triples[text] = hashes, tuple(sorted(hashes)[:SKETCH])
        return self._triples[text]


def _paragraphs(prompt: Prompt) -> Iterator[tuple[Span, int, int]]:
    for span in prompt.spans:
        if span.role != "tools":
            for start, end in _blocks(prompt.text, span.start, span.end):
                yield span, start, end


def _blocks(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """What blank lines part."""
    for gap in GAP.finditer(text, start, end):
        if gap.start() > start:
            yield start, gap.start()
        start = gap.end()
    if start < end:
        yield start, end


def _similar(first: frozenset[int], second: frozenset[int]) -> bool:
    return len(first & second) >= NEARLY * len(first | second)


def _counts(first: Span, second: Span, last: int) -> bool:
    return first.number == second.number or any(
        s.role in (*SYSTEM_ROLES, "tool") or s.number == last for s in (first, second)
    )


def expected(prompt: Prompt, min_tokens: int) -> Iterator[Place]:
    """Values of a prompt that is known only once: placeholders, and values behind words such as “Today is”."""
    questions = [s for s in prompt.spans if s.role == "user"]
    end = questions[-1].start if questions else len(prompt.text)
    seen: set[str] = set()
    for kind, start, stop in sorted(_suspects(prompt.text[:end]), key=lambda found: found[1]):
        tokens = prompt.num_between(stop, end)
        if tokens >= min_tokens and kind not in seen:
            seen.add(kind)
            span = prompt.span_at(start)
            value = excerpts.value(prompt.text, start, stop)
            proposal = advise(kind, value=f"“{value}”", where=span.name if span else "the prompt")
            yield Place(kind, 0, tokens, _shown(prompt, start, stop, proposal), observed=False)


def _suspects(text: str) -> Iterator[tuple[str, int, int]]:
    for found in PLACEHOLDER.finditer(text):
        yield PLACEHOLDER_KINDS.get(found["name"].lower(), "user_name"), *found.span()
    taken: list[tuple[int, int]] = []
    for name in ("uuid", "timestamp", "date", "time", "identifier"):
        for found in PATTERNS[name].finditer(text):
            start, stop = found.span()
            if any(a < stop and start < b for a, b in taken):
                continue
            if name == "uuid" or STATIC_CUE.search(text, max(0, start - 60), start):
                taken.append((start, stop))
                yield name, start, stop


def _shown(prompt: Prompt, start: int, end: int, proposal: str, position: int | None = None) -> Divergence:
    span = prompt.span_at(start)
    return Divergence(
        earlier="",
        later=prompt.logged.source,
        where=span.name if span is not None else "what the chat template writes",
        position=prompt.tokens.index_at(start) if position is None else position,
        before=excerpts.before(prompt.text, start),
        earlier_value="",
        value=excerpts.value(prompt.text, start, end),
        after=excerpts.after(prompt.text, end),
        proposal=proposal,
    )
