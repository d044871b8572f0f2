"""The linter: prompts in, a report out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cachestack.engines.token_space import TokenSpace
from cachestack.errors import MissingExtra, ModelError, ModelNotFound, UsageError
from cachestack.lint import excerpts, single
from cachestack.lint.costs import Pair, compare, cost, ms, ordered
from cachestack.lint.diverging import lines_of
from cachestack.lint.families import Families
from cachestack.lint.logs import LoggedPrompt, as_logged
from cachestack.lint.prefix_tree import PrefixTree
from cachestack.lint.rendering import Prompt, render
from cachestack.lint.report import Finding, LintReport, RepeatedPrefix
from cachestack.lint.space import Characters

Progress = Callable[[str, int, int], None]
DEFAULT_MS_PER_TOKEN = 1.4
"""SmolLM2-135M in float32 on two CPU cores: about 300 ms for a prompt of 212 tokens, as `cachestack measure` shows."""
MIN_TOKENS = 16
MAX_MESSAGE_TOKENS = 2000
MAX_PREFIXES = 20
EVERY = 64
MANY_PROMPTS = 64
"""From so many prompts of a family its template is known."""


def lint(
    requests: Iterable[Any],
    *,
    model: str | TokenSpace | None = None,
    characters: bool = False,
    min_tokens: int = MIN_TOKENS,
    max_message_tokens: int = MAX_MESSAGE_TOKENS,
    ms_per_token: float | None = None,
    progress: Progress | None = None,
) -> LintReport:
    """What breaks a prefix cache in these prompts, in the order in which they were sent.

    `requests`: text as the model gets it, mappings as in a log, Request, StructuredPrompt, or LoggedPrompt. Tokens are
    those of `model` (default: the embedded one; or what `open_space` gave), whose weights are not read;
    `characters=True` counts characters instead, and knows no milliseconds. `min_tokens` is the policy's
    `prefix.min_tokens`. `ms_per_token` is what computing a prompt token costs. Raises InputFileError for what is no
    prompt, ModelError for a tokenizer that cannot be had, UsageError for no prompts.
    """
    logged = [as_logged(row, f"prompt {number}") for number, row in enumerate(requests, start=1)]
    if not logged:
        raise UsageError("there is nothing to look at; give at least one prompt")
    space: TokenSpace | str | None = Characters() if characters else model
    if space is None or isinstance(space, str):
        space = open_space(space)
    cost_ms = None if characters else DEFAULT_MS_PER_TOKEN if ms_per_token is None else ms_per_token
    report = progress or (lambda stage, done, total: None)
    return _lint(logged, space, min_tokens, max_message_tokens, cost_ms, report)


def open_space(model: str | None) -> TokenSpace:
    """The tokens of a model. Raises ModelError that also names the way without one."""
    from cachestack.engines.transformers.tokens import PromptTokens, open_tokenizer
    from cachestack.models.catalogue import DEFAULT_LLM

    name = model or DEFAULT_LLM
    try:
        return PromptTokens(open_tokenizer(name), name)
    except (ModelError, MissingExtra) as error:
        kind = type(error) if isinstance(error, ModelError) else ModelNotFound
        raise kind(f"{error}. Or count in characters: --characters, lint(..., characters=True)") from error


def _lint(
    logged: Sequence[LoggedPrompt],
    space: TokenSpace,
    min_tokens: int,
    max_message_tokens: int,
    ms_per_token: float | None,
    progress: Progress,
) -> LintReport:
    prompts: list[Prompt] = []
    for number, one in enumerate(logged):
        _tell(progress, space.unit, number, len(logged))
        prompts.append(render(one, space))
    progress(space.unit, len(logged), len(logged))
    reusable, prefixes = _prefixes(prompts, min_tokens)
    finder = Families()
    families = [finder.family_of(prompt.logged) for prompt in prompts]
    sizes = Counter(families)
    pairs = _pairs(prompts, families, reusable, min_tokens, progress)
    costed = cost(pairs, prompts, sizes, min_tokens, ms_per_token, space.unit)
    places = _places(prompts, families, reusable, space, min_tokens, max_message_tokens)
    findings = ordered([*costed.findings, *_grouped(places, ms_per_token)])
    num_reusable = sum(n for n in reusable if n >= min_tokens)
    return LintReport(
        model=space.name,
        unit=space.unit,
        num_prompts=len(prompts),
        num_tenants=len({p.logged.tenant for p in prompts}),
        num_families=len(sizes),
        num_tokens=sum(p.num_tokens for p in prompts),
        reusable_tokens=num_reusable,
        mended_tokens=num_reusable + costed.gained,
        ms_per_token=ms_per_token,
        prefixes=prefixes,
        findings=findings,
        notes=_notes(prompts, space),
    )


def _tell(progress: Progress, stage: str, done: int, total: int) -> None:
    if done % EVERY == 0:
        progress(stage, done, total)


def _prefixes(prompts: Sequence[Prompt], min_tokens: int) -> tuple[list[int], tuple[RepeatedPrefix, ...]]:
    """What each prompt shares with an earlier one of its tenant, at most all its tokens but one; and the beginnings."""
    by_tenant: dict[str, list[int]] = defaultdict(list)
    for number, prompt in enumerate(prompts):
        by_tenant[prompt.logged.tenant].append(number)
    reusable = [0] * len(prompts)
    found: list[tuple[int, RepeatedPrefix]] = []
    total = max(1, sum(p.num_tokens for p in prompts))
    for tenant, numbers in by_tenant.items():
        tree = PrefixTree([prompts[n].tokens.ids for n in numbers])
        for number, shared in zip(numbers, tree.reusable(), strict=True):
            reusable[number] = min(shared, max(0, prompts[number].num_tokens - 1))
        for node in tree.nodes(min_tokens):
            if node.num_tokens - node.parent_tokens < min_tokens:
                continue  # a few tokens more than a beginning that more prompts share
            prompt = prompts[numbers[node.prompt]]
            end = _char_at(prompt, node.num_tokens)
            share = node.num_tokens * node.num_prompts / total
            begins, ends = excerpts.after(prompt.text, 0), excerpts.before(prompt.text, end)
            prefix = RepeatedPrefix(tenant, node.num_prompts, node.num_tokens, share, begins, ends)
            found.append((node.num_tokens * node.num_prompts, prefix))
    found.sort(key=lambda one: (-one[0], one[1].tenant, -one[1].num_prompts))
    return reusable, tuple(prefix for _, prefix in found[:MAX_PREFIXES])


def _char_at(prompt: Prompt, token: int) -> int:
    return int(prompt.tokens.starts[token]) if token < prompt.num_tokens else len(prompt.text)


def _pairs(
    prompts: Sequence[Prompt], families: Sequence[int], reusable: Sequence[int], min_tokens: int, progress: Progress
) -> list[Pair]:
    fixed = _fixed_lines(prompts, families)
    latest: dict[int, int] = {}
    pairs: list[Pair] = []
    for number, (prompt, family) in enumerate(zip(prompts, families, strict=True)):
        _tell(progress, "comparing", number, len(prompts))
        earlier = latest.get(family)
        latest[family] = number
        if earlier is None or prompt.text == prompts[earlier].text:
            continue
        pair = compare(family, number, earlier, prompts, reusable[number], min_tokens, fixed[family])
        if pair is not None:
            pairs.append(pair)
    progress("comparing", len(prompts), len(prompts))
    return pairs


def _fixed_lines(prompts: Sequence[Prompt], families: Sequence[int]) -> dict[int, frozenset[str]]:
    """For each family, the lines that most of its first prompts have: its template's."""
    seen: dict[int, Counter[str]] = defaultdict(Counter)
    sizes: Counter[int] = Counter()
    for prompt, family in zip(prompts, families, strict=True):
        if sizes[family] < MANY_PROMPTS:
            sizes[family] += 1
            seen[family].update(lines_of(prompt.text))
    return {
        family: frozenset(line for line, count in seen[family].items() if count > size / 2)
        for family, size in sizes.items()
    }


def _places(
    prompts: Sequence[Prompt],
    families: Sequence[int],
    reusable: Sequence[int],
    space: TokenSpace,
    min_tokens: int,
    max_message_tokens: int,
) -> Iterable[single.Place]:
    repetitions = single.Repetitions()
    for number, prompt in enumerate(prompts):
        for place in (
            single.double_bos(number, prompt, space.bos),
            repetitions.find(number, prompt, reusable[number], min_tokens),
        ):
            if place is not None:
                yield place
    yield from single.oversized(prompts, reusable, max_message_tokens, space.unit)
    yield from single.short_prefixes(prompts, families, reusable, min_tokens, space.unit)
    if len(prompts) == 1:
        yield from single.expected(prompts[0], min_tokens)


def _grouped(places: Iterable[single.Place], ms_per_token: float | None) -> list[Finding]:
    by_kind: dict[str, list[single.Place]] = defaultdict(list)
    for place in places:
        by_kind[place.kind].append(place)
    findings: list[Finding] = []
    for kind, found in by_kind.items():
        tokens = sum(place.tokens for place in found)
        first = max(found, key=lambda place: place.tokens)
        count = len({place.number for place in found})
        cost_ms = ms(tokens, ms_per_token)
        findings.append(Finding(kind, count, tokens, cost_ms, first.shown.proposal, (first.shown,), first.observed))
    return findings


def _notes(prompts: Sequence[Prompt], space: TokenSpace) -> tuple[str, ...]:
    notes: list[str] = []
    refused = sum(prompt.refused for prompt in prompts)
    if refused:
        notes.append(
            f"the chat template of {space.name} refuses the messages of {refused} prompts; they count as plain turns"
        )
    with_others = sum(prompt.logged.has_other_parts for prompt in prompts)
    if with_others:
        notes.append(f"images and other parts that are not text, in {with_others} prompts, count nothing")
    with_tools = sum(bool(prompt.logged.tools) for prompt in prompts)
    if with_tools:
        notes.append(
            f"the tools of {with_tools} prompts count as JSON before the messages; templates write them otherwise"
        )
    if getattr(space, "template_asks_for_the_date", False) and any(p.logged.text is None for p in prompts):
        notes.append(
            f"the chat template of {space.name} prints the current date: with most servers its prompts change at "
            "midnight; CacheStack gives it a fixed one"
        )
    return tuple(notes)
