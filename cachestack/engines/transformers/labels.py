"""Labels as token sequences: how they are tokenised, told apart, and scored from rows of logits.

Two ways to score. Where the labels' first tokens are distinct, the probability of the first token is the label's: one
row of logits answers. Otherwise a label's score is the sum of the log-probabilities of its tokens, and a label that
is a prefix of another also has to end there (the end-of-turn token), so that "card" and "card arrival" are two
events, not one inside the other. Either way no two labels overlap, and the probabilities of all labels add up to at
most one: that sum is the `mass`. A mean over a label's tokens needs all of them, so `whole` asks for the second way
where the first would do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cachestack.engines.transformers.boundary import encode
from cachestack.errors import LabelError

if TYPE_CHECKING:
    import torch

ROOT = -1


@dataclass(frozen=True)
class LabelSet:
    """Labels and their token ids after the opening of the assistant's turn.

    `end_ids` are the tokens that end a turn. `num_unclean` labels were tokenised by themselves, because together with
    the opening they would have changed its tokens. With `whole` all tokens of a label are scored, whatever the first
    ones are.
    """

    labels: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    end_ids: tuple[int, ...] = ()
    num_unclean: int = 0
    whole: bool = False

    @cached_property
    def collisions(self) -> tuple[tuple[str, ...], ...]:
        """Groups of labels that begin with the same token."""
        groups: dict[int, list[str]] = {}
        for label, ids in zip(self.labels, self.ids, strict=True):
            groups.setdefault(ids[0], []).append(label)
        return tuple(tuple(group) for group in groups.values() if len(group) > 1)

    @property
    def by_first_token(self) -> bool:
        return not self.whole and not self.collisions

    @cached_property
    def num_scored(self) -> tuple[int, ...]:
        """How many tokens each label's score is the sum of, the end of the turn included where it has to follow."""
        if self.by_first_token:
            return (1,) * len(self.ids)
        return tuple(len(ids) + (i in self.must_end and bool(self.end_ids)) for i, ids in enumerate(self.ids))

    @cached_property
    def must_end(self) -> frozenset[int]:
        """Indices of labels whose tokens another label's tokens begin with."""
        order = sorted(range(len(self.ids)), key=lambda i: self.ids[i])
        # In sorted order a sequence stands directly before those that it begins.
        return frozenset(
            first for first, second in pairwise(order) if self.ids[second][: len(self.ids[first])] == self.ids[first]
        )


def label_set(
    tokenizer: Any,
    opening: str,
    labels: Sequence[str],
    *,
    space: str = "",
    end_ids: Sequence[int] = (),
    whole: bool = False,
) -> LabelSet:
    """Tokenise labels where the model would write them: after `opening`, a prompt up to the assistant's first token,
    and the `space` that the model puts before a word there.

    White space around a label is not part of it. Raises LabelError for an empty label, for duplicates (as text or as
    tokens), and for a label without tokens or with special ones: a turn's end as a label, or within one, would be
    taken for the end of another label.
    """
    texts = check_labels(labels)
    before = encode(tokenizer, opening, add_special_tokens=False)
    special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id} | {*end_ids}
    found: list[tuple[int, ...]] = []
    owner: dict[tuple[int, ...], str] = {}
    num_unclean = 0
    for label, text in zip(labels, texts, strict=True):
        together = encode(tokenizer, opening + space + text, add_special_tokens=False)
        if together[: len(before)] == before:
            ids = tuple(together[len(before) :])
        else:
            ids = tuple(encode(tokenizer, space + text, add_special_tokens=False))
            num_unclean += 1
        if not ids:
            raise LabelError(f"label {label!r} has no tokens in this model's vocabulary; give it other text")
        if not special.isdisjoint(ids):
            raise LabelError(f"label {label!r} holds a special token of the model, which is no text; leave it out")
        if ids in owner:
            raise LabelError(f"labels {owner[ids]!r} and {label!r} are the same to the model; give each label once")
        owner[ids] = label
        found.append(ids)
    return LabelSet(tuple(labels), tuple(found), tuple(end_ids), num_unclean, whole)


def check_labels(labels: Sequence[str]) -> list[str]:
    """The labels without outer white space. Raises LabelError for what is wrong with them whatever the model."""
    if isinstance(labels, str):
        raise LabelError(f"labels are a list of texts, not one text: {labels!r}")
    if not labels:
        raise LabelError("no labels were given; give at least one")
    texts: dict[str, int] = {}
    for number, label in enumerate(labels, start=1):
        if not isinstance(label, str):
            raise LabelError(f"label {number} of {len(labels)} is not text but {type(label).__name__}")
        text = label.strip()
        if not text:
            raise LabelError(f"label {number} of {len(labels)} is empty; give it text")
        if text in texts:
            raise LabelError(f"label {text!r} is there twice (as {texts[text]} and {number}); give it once")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise LabelError(f"label {number} of {len(labels)} is not valid Unicode (a lone surrogate)") from None
        texts[text] = number
    return list(texts)


@dataclass(frozen=True, slots=True)
class LabelTrie:
    """The tokens that have to be computed to score some labels whole; shared beginnings are computed once.

    Node i holds `tokens[i]` at `depths[i]` (0 for a first token) below node `parents[i]` (ROOT: the prompt itself);
    parents stand before their children. `steps` are (member, node, token): the token must follow the node in the
    label `members[member]`. `ends` are (member, node): the turn must end there. First tokens follow the prompt and
    are in neither.
    """

    members: tuple[int, ...]
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    steps: tuple[tuple[int, int, int], ...]
    ends: tuple[tuple[int, int], ...]


def label_tries(labels: LabelSet, max_nodes: int) -> tuple[LabelTrie, ...]:
    """Tries that together hold every label, each of at most `max_nodes` nodes unless it holds a single label."""
    order = sorted(range(len(labels.ids)), key=lambda i: labels.ids[i])
    return tuple(_trie(labels, members) for members in _groups(labels, order, max_nodes))


def _computed(labels: LabelSet, index: int) -> tuple[int, ...]:
    """The tokens of a label that something is asked after: not its last one, unless the label must end there."""
    ids = labels.ids[index]
    return ids if index in labels.must_end and labels.end_ids else ids[:-1]


def _groups(labels: LabelSet, order: Sequence[int], max_nodes: int) -> Iterator[list[int]]:
    group: list[int] = []
    nodes: set[tuple[int, ...]] = set()
    for index in order:
        path = _computed(labels, index)
        new = {path[: n + 1] for n in range(len(path))}
        if group and len(nodes | new) > max_nodes:
            yield group
            group, nodes = [], set()
        group.append(index)
        nodes |= new
    if group:
        yield group


def _trie(labels: LabelSet, members: Sequence[int]) -> LabelTrie:
    node_of: dict[tuple[int, ...], int] = {(): ROOT}
    paths: list[tuple[int, ...]] = []
    steps: list[tuple[int, int, int]] = []
    ends: list[tuple[int, int]] = []
    for position, member in enumerate(members):
        ids, path = labels.ids[member], _computed(labels, member)
        for n in range(1, len(path) + 1):
            if path[:n] not in node_of:
                node_of[path[:n]] = len(paths)
                paths.append(path[:n])
        steps += [(position, node_of[ids[:n]], ids[n]) for n in range(1, len(ids))]
        if len(path) == len(ids):
            ends.append((position, node_of[ids]))
    return LabelTrie(
        members=tuple(members),
        tokens=tuple(path[-1] for path in paths),
        parents=tuple(node_of[path[:-1]] for path in paths),
        depths=tuple(len(path) - 1 for path in paths),
        steps=tuple(steps),
        ends=tuple(ends),
    )


def first_token_scores(labels: LabelSet, row: torch.Tensor) -> torch.Tensor:
    """Log-probabilities `[labels]` (float64) of the first tokens. `row`: logits `[vocabulary]` after the prompt."""
    wide = row.cpu().double()  # not every device has float64
    return wide[[ids[0] for ids in labels.ids]] - wide.logsumexp(-1)


def inner_scores(labels: LabelSet, trie: LabelTrie, nodes: torch.Tensor) -> torch.Tensor:
    """What the tokens after the first add to the members' scores: `[members]`, float64, on the CPU.

    `nodes`: logits `[nodes, vocabulary]` after each node of the trie, float32.
    """
    import torch

    total = torch.zeros(len(trie.members), dtype=torch.float64)
    normaliser = nodes.logsumexp(-1).cpu().double()
    if trie.steps:
        member, node, token = torch.tensor(trie.steps).unbind(1)
        followed = nodes[node.to(nodes.device), token.to(nodes.device)].cpu().double()
        total.index_add_(0, member, followed - normaliser[node])
    if trie.ends:
        member, node = torch.tensor(trie.ends).unbind(1)
        ended = nodes[node.to(nodes.device)][:, list(labels.end_ids)].cpu().double().logsumexp(-1)
        total.index_add_(0, member, ended - normaliser[node])
    return total
