"""From places where prompts part to findings: what was lost behind each, which count, grouped by kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cachestack.lint import excerpts
from cachestack.lint.advice import advise
from cachestack.lint.diverging import Parting, partings
from cachestack.lint.pieces import Piece
from cachestack.lint.prefix_tree import num_shared
from cachestack.lint.rendering import Prompt
from cachestack.lint.report import Divergence, Finding

EDITED = frozenset({
    "variable", "counter", "white_space", "separator", "key_order", "tool_order", "tool_set", "example_order",
})  # fmt: skip
"""One change among many prompts is somebody's edit of the prompt, not a habit of the code."""
MANY = 4
MIN_VARIABLE, MIN_SAID = 32, 64
"""What must be lost behind text of no known form, or in the second half of what the application wrote; and behind
anything in what a user says, which is the question itself as a rule."""
ROUNDED = frozenset({"date", "time", "timestamp", "template_date"})
MIN_ROUNDED = 0.05
"""Of a family's neighbours: a date or time that changes less often is rounded already, as the advice says."""
MIN_OFTEN = 0.1
"""The share of a family's neighbours that part at text of no known form and go on alike, from which it is a habit."""
CHANCE = 8
"""Characters with which two questions may begin alike by chance."""
SAID = ("user", "assistant", "tool")
MAX_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """Two prompts of a family, one after the other, where they part, and the tokens lost right behind each place.

    `habits`: the kinds behind which they are the same again, whether or not an earlier prompt made up for it.
    """

    family: int
    earlier: int
    later: int
    partings: tuple[Parting, ...]
    lost: tuple[int, ...]
    habits: frozenset[str]


@dataclass(frozen=True, slots=True)
class Costed:
    """`gained`: tokens by which reuse would grow."""

    findings: tuple[Finding, ...]
    gained: int


def compare(
    family: int,
    number: int,
    earlier_number: int,
    prompts: Sequence[Prompt],
    reusable: int,
    min_tokens: int,
    fixed: Collection[str] = (),
) -> Pair | None:
    """What the later prompt lost against the earlier one, beyond what it shares with any prompt before it; None where
    nothing of `min_tokens` or more lies behind the place where they part. `fixed`: the lines that most prompts of the
    family have."""
    earlier, later = prompts[earlier_number], prompts[number]
    found = partings(earlier, later, fixed)
    behind = [_lost(later, parting, 0) for parting in found]
    habits = frozenset(p.piece.kind for n, p in enumerate(found) if sum(behind[n:]) >= min_tokens)
    if not habits:
        return None
    lost = tuple(_lost(later, parting, reusable) for parting in found)
    return Pair(family, earlier_number, number, found, lost, habits)


def _lost(later: Prompt, parting: Parting, reusable: int) -> int:
    """Up to the end of the last message that is reached: what the template writes behind it says nothing."""
    piece = parting.piece
    end = piece.later_end + parting.num_equal
    said = min(end, max((span.end for span in later.spans if span.start + CHANCE < end), default=end))
    behind = later.num_between(piece.later_end, said, beyond=reusable)
    inside = later.num_between(piece.later_start, piece.later_end, beyond=reusable) if piece.share else 0
    return behind + round(piece.share * inside)


def cost(
    pairs: Sequence[Pair], prompts: Sequence[Prompt], sizes: Counter[int], min_tokens: int, ms_per_token: float | None,
    unit: str,
) -> Costed:  # fmt: skip
    counts = Counter((pair.family, kind) for pair in pairs for kind in pair.habits)
    groups: dict[str, list[tuple[int, Pair, Piece]]] = defaultdict(list)
    gained = 0
    for pair in pairs:
        kept = _kept(pair, prompts, counts, sizes)
        lost = pair.lost[: len(kept)]
        if sum(lost) < min_tokens:
            continue
        gained += sum(lost)
        seen: set[str] = set()
        for n, parting in enumerate(kept):
            behind = sum(lost[n:])
            if parting.piece.kind not in seen and behind >= min_tokens:
                seen.add(parting.piece.kind)
                groups[parting.piece.kind].append((behind, pair, parting.piece))
    findings = [
        _finding(kind, places, prompts, ms_per_token, unit) for kind, places in groups.items()
    ]  # ordered by the caller
    return Costed(tuple(findings), gained)


def _kept(
    pair: Pair, prompts: Sequence[Prompt], counts: Counter[tuple[int, str]], sizes: Counter[int]
) -> tuple[Parting, ...]:
    """Up to the first place that is no habit: what lies behind it would not be shared whatever is mended before."""
    later = prompts[pair.later]
    for n, parting in enumerate(pair.partings):
        kind, span = parting.piece.kind, later.span_at(parting.piece.later_start)
        role = span.role if span is not None else ""
        is_late = span is not None and 2 * parting.piece.later_start > span.start + span.end and role != "tools"
        least = MIN_SAID if role in SAID else MIN_VARIABLE if is_late else 0
        is_content = sum(pair.lost[n:]) < (0 if parting.piece.share else least)
        is_edit = kind in EDITED and counts[pair.family, kind] == 1 and sizes[pair.family] >= MANY
        is_edit = is_edit or (kind in ROUNDED and counts[pair.family, kind] < MIN_ROUNDED * (sizes[pair.family] - 1))
        if kind == "variable":
            is_rare = counts[pair.family, kind] < max(2, MIN_OFTEN * (sizes[pair.family] - 1))
            is_content = is_content or is_rare or sum(pair.lost[n:]) < MIN_VARIABLE
        if is_edit or is_content:
            return pair.partings[:n]
    return pair.partings


def _finding(
    kind: str,
    places: list[tuple[int, Pair, Piece]],
    prompts: Sequence[Prompt],
    ms_per_token: float | None,
    unit: str,
) -> Finding:
    examples: dict[int, Divergence] = {}
    for behind, pair, piece in sorted(places, key=lambda place: -place[0]):
        if pair.family not in examples and len(examples) < MAX_EXAMPLES:
            examples[pair.family] = _shown(pair, piece, prompts, behind, unit)
    tokens = sum(behind for behind, _, _ in places)
    shown = tuple(examples.values())
    return Finding(kind, len(places), tokens, ms(tokens, ms_per_token), shown[0].proposal, shown)


def _shown(pair: Pair, piece: Piece, prompts: Sequence[Prompt], behind: int, unit: str) -> Divergence:
    earlier, later = prompts[pair.earlier], prompts[pair.later]
    span = later.span_at(piece.later_start)
    where = span.name if span is not None else "what the chat template writes"
    is_first = piece is pair.partings[0].piece
    parted = num_shared(earlier.tokens.ids, later.tokens.ids)
    position = parted if is_first else later.tokens.index_at(piece.later_start)
    values = [
        excerpts.value(earlier.text, piece.start, piece.end),
        excerpts.value(later.text, piece.later_start, piece.later_end),
    ]
    return Divergence(
        earlier=earlier.logged.source,
        later=later.logged.source,
        where=where,
        position=position,
        before=excerpts.before(later.text, piece.later_start),
        earlier_value=values[0],
        value=values[1],
        after=excerpts.after(later.text, piece.later_end),
        proposal=advise(
            piece.kind, value=f"“{values[1]}”", earlier=f"“{values[0]}”", where=where, lost=f"{behind:,} {unit}"
        ),
    )


def ms(tokens: int, ms_per_token: float | None) -> float | None:
    return None if ms_per_token is None else round(tokens * ms_per_token, 1)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The costliest first."""
    return tuple(sorted(findings, key=lambda f: (-f.tokens_lost, f.kind)))
