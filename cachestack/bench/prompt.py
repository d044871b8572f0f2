"""A classifier's prompt whose prefix and suffixes have exactly the numbers of tokens that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from cachestack.errors import UsageError

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine
    from cachestack.engines.transformers.scoring import LabelScorer

MAX_CLOSINGS = 3
Texts = Annotated[tuple[str, ...], Field(min_length=2)]


class Material(BaseModel):
    """What prompts are made of. An example is a team and its ticket."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: str
    teams: Texts
    examples: tuple[tuple[str, str], ...]
    tickets: Texts
    closings: Texts


@dataclass(frozen=True, slots=True)
class FewShot:
    """`prefix`: the ids that all prompts begin with, chat template included. `suffixes`: what follows for each ticket,
    all of one length, the opening of the assistant's turn included. `scorer` scores the teams after them."""

    scorer: LabelScorer
    prefix: tuple[int, ...]
    suffixes: tuple[tuple[int, ...], ...]

    def whole(self, index: int) -> tuple[int, ...]:
        return (*self.prefix, *self.suffix(index))

    def suffix(self, index: int) -> tuple[int, ...]:
        """Of the ticket `index`, counted round and round."""
        return self.suffixes[index % len(self.suffixes)]

    def pack(self, index: int, num_items: int) -> tuple[tuple[int, ...], ...]:
        """The suffixes of `num_items` tickets, `index` first."""
        return tuple(self.suffix(index + i) for i in range(num_items))


def load_material() -> Material:
    text = resources.files("cachestack").joinpath("bench/prompt.yaml").read_text(encoding="utf-8")
    return Material.model_validate(yaml.safe_load(text))


def few_shot(engine: TransformersEngine, prefix_tokens: int, suffix_tokens: int, material: Material) -> FewShot:
    """Whole examples and whole tickets only; nothing is cut.

    Raises UsageError where the material cannot give these numbers with the model's tokenizer and chat template.
    """
    from cachestack.engines.transformers.scoring import LabelScorer

    def scorer_of(chosen: Sequence[int]) -> LabelScorer:
        system = "\n\n".join((material.rules, *(_shown(*material.examples[i]) for i in chosen)))
        return LabelScorer(engine, material.teams, prompt=system, template="{text}")

    def prefix_of(scorer: LabelScorer) -> tuple[int, ...]:
        return scorer.stable_tokens([scorer.tokenise(ticket) for ticket in material.tickets[:2]])

    bare = len(prefix_of(scorer_of(())))
    tokenizer = engine.loaded.tokenizer
    costs = [_num_tokens(tokenizer, "\n\n" + _shown(*example)) for example in material.examples]
    chosen = choose(costs, prefix_tokens - bare)
    if chosen is None:
        raise UsageError(
            f"the examples cannot make a prefix of exactly {prefix_tokens} tokens with this model's tokenizer: the "
            f"rules alone have {bare}, and all examples together {sum(costs)} more"
        )
    scorer = scorer_of(chosen)
    prefix = prefix_of(scorer)
    if len(prefix) != prefix_tokens:
        raise UsageError(
            f"the prefix has {len(prefix)} tokens instead of {prefix_tokens}: this model's tokenizer joins text "
            "across lines, and the benchmark does not know such models yet"
        )
    closings = [(closing, _num_tokens(tokenizer, closing)) for closing in material.closings]
    whole = [_closed(scorer, ticket, closings, prefix_tokens + suffix_tokens) for ticket in material.tickets]
    suffixes = tuple(ids[prefix_tokens:] for ids in whole if ids[:prefix_tokens] == prefix)
    if len(suffixes) < len(material.tickets) // 2:
        raise UsageError(
            f"only {len(suffixes)} of {len(material.tickets)} tickets can be given exactly {suffix_tokens} tokens with "
            "this model's tokenizer"
        )
    return FewShot(scorer, prefix, suffixes)


def choose(costs: Sequence[int], total: int) -> tuple[int, ...] | None:
    """Indices, ascending, of costs that add up to `total`; None where none do. Early ones come first."""
    found: dict[int, tuple[int, ...]] = {0: ()}
    for index, cost in enumerate(costs):
        if total in found:
            break
        for reached, indices in tuple(found.items()):
            if reached + cost <= total:
                found.setdefault(reached + cost, (*indices, index))
    return found.get(total)


def _closed(scorer: LabelScorer, ticket: str, closings: Sequence[tuple[str, int]], total: int) -> tuple[int, ...]:
    """The prompt of the ticket, with as few closings as give it `total` tokens; empty where none do.

    `closings` come with their numbers of tokens, which add up in most tokenizers: the prompt's are counted.
    """
    missing = total - len(scorer.tokenise(ticket))
    for num_closings in range(MAX_CLOSINGS + 1):
        for chosen in combinations(closings, num_closings):
            if sum(cost for _, cost in chosen) == missing:
                ids = scorer.tokenise(ticket + "".join(text for text, _ in chosen))
                if len(ids) == total:
                    return ids
    return ()


def _shown(team: str, ticket: str) -> str:
    return f"Ticket: {ticket}\nTeam: {team}"


def _num_tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])
