"""The semantic lookup over one cached entry: what `compare` and `eval pairs` ask."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from cachestack.effects import Consult, Embed, Embedding, EmbedFormer, FindExact, Search, Verify
from cachestack.entries import Candidate, Entry
from cachestack.keys import Contract, Partition
from cachestack.semantic.vectors import cosine, to_vector

R = TypeVar("R")


def run_with_one_entry(
    lookup: Generator[FindExact | Embed | EmbedFormer | Search | Verify | Consult, Any, R],
    entry: Entry | None,
    embed: Callable[[str], Embedding | Any],
    verify: Callable[[Verify], Any],
) -> R:
    """Drive `lookup` as if `entry` were all that its own partition holds.

    The walls are those of a store: an entry of another partition is not found, nor one of a contract that differs in
    more than its history.
    """
    try:
        effect = next(lookup)
        while True:
            match effect:
                case FindExact(partition, exact):
                    same = entry is not None and entry.partition == partition and entry.exact == exact
                    result: Any = entry if same else None
                case Embed(text):
                    result = embed(text)
                case EmbedFormer() | Consult():
                    result = None  # a pair on its own is judged by the policy's fixed threshold
                case Search(partition, contract, vector, encoder, _):
                    result = []
                    if entry is not None and entry.vector is not None and _same(entry, partition, contract, encoder):
                        result = [Candidate(entry, _similarity(entry.vector, vector))]
                case Verify():
                    result = verify(effect)
            effect = lookup.send(result)
    except StopIteration as stop:
        answer: R = stop.value
        return answer


def _same(entry: Entry, partition: Partition, contract: Contract, encoder: str) -> bool:
    return (entry.partition, entry.group, entry.encoder) == (partition, contract.group, encoder)


def _similarity(one: bytes, other: bytes) -> float:
    first, second = (to_vector(data, len(data) // 4) for data in (one, other))
    return -1.0 if first is None or second is None else cosine(first, second)
