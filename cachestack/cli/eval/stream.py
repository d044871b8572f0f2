"""`cachestack eval stream`: requests in order, under an error budget, against the best fixed threshold in hindsight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachestack.build import DEFAULT_ENCODER
from cachestack.cli.eval.options import EncoderOption, PolicyOption, PolicyTenantOption, check_plot, chosen_policy
from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table, stage_bars
from cachestack.corpus.load import Split
from cachestack.errors import ConfigError, UsageError
from cachestack.policy import Policy

if TYPE_CHECKING:
    from cachestack.evaluation.stream_material import Asked


def evaluate_stream(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE...", help="JSONL with text or messages, and label.")
    ] = None,
    corpus: Annotated[
        Split | None, typer.Option("--corpus", help="Streams made from this part of the corpus, one a seed.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="RATE", help="Wrong hits per hit by meaning, such as 0.01.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Draws of the audits, and of corpus streams.")] = 1,
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, help="Of a corpus stream (20,000 unless given), or of each file.")
    ] = None,
    near_misses: Annotated[
        float | None,
        typer.Option("--near-misses", min=0, max=1, help="Their share in a corpus stream; 0.2 unless given."),
    ] = None,
    even: Annotated[
        bool, typer.Option("--even", help="Each text of a cluster as likely as another: 46% near misses.")
    ] = False,
    drift: Annotated[
        bool,
        typer.Option("--drift", help="From the middle of a corpus stream: other domains, more near misses."),
    ] = False,
    policy: PolicyOption = None,
    policies: PoliciesOption = None,
    tenant: PolicyTenantOption = None,
    encoder: EncoderOption = DEFAULT_ENCODER,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="PNG", help="Rate, hits and threshold over time.")] = (
        None
    ),
    json: JsonOption = False,
) -> None:
    """Ask in order; the engine's answer is the label, and the budget sees those of audits and of misses only.

    Where labels are intents, not answers, two requests of one label may need different answers: the rate of wrong hits
    is then a lower bound.
    """
    if bool(files) == (corpus is not None):
        raise UsageError("give files, or --corpus train, validation or test")
    if corpus is None and (drift or even or near_misses is not None):
        raise UsageError("--drift, --even and --near-misses make corpus streams; a file is taken as it is")
    if even and (near_misses is not None or drift):
        raise UsageError("--even says how many near misses there are; leave out --near-misses and --drift")
    check_plot(plot)
    chosen = _with_budget(chosen_policy(policy, policies, tenant), budget)
    from cachestack.cli.eval.options import open_encoder
    from cachestack.evaluation.judging import embed_all, languages_of
    from cachestack.evaluation.stream_material import Material
    from cachestack.evaluation.stream_replay import Order, oracle, replay
    from cachestack.evaluation.stream_report import SeedResult, summarise

    streams = _streams(files, corpus, seeds, requests, None if even else near_misses, drift=drift, even=even)
    opened = open_encoder(encoder)
    if opened is None:
        raise ConfigError("a stream is matched by meaning: give an encoder other than none")
    material = Material(chosen)
    results: dict[str, list[SeedResult]] = {}
    rate = chosen.budget.max_wrong_hit_rate
    assert rate is not None, "it was checked"
    with stage_bars("stream") as report:
        orders = {
            key: Order([material.number(a) for a in asked], [a.label for a in asked]) for key, asked in streams.items()
        }
        embeddings = embed_all([q.text for q in material.questions], opened, report)
        material.prepare(embeddings, languages_of(opened), report)
        done = 0
        for name in dict.fromkeys(name for name, _ in streams):
            results[name] = []
            for seed in range(seeds):
                order = orders.get((name, seed)) or orders[name, 0]
                run = replay(material, order, chosen, seed)
                results[name].append(SeedResult(seed, run, oracle(material, order, rate)))
                done += 1
                report("replay", done, seeds * len({name for name, _ in streams}))
    found = {name: summarise(some, rate) for name, some in results.items()}
    if plot is not None:
        from cachestack.evaluation.stream_plot import plot_streams

        plot_streams([r for some in results.values() for r in some], rate, plot, drift=drift)
    if json:
        print_json({"streams": found} if len(found) > 1 else next(iter(found.values())))
        return
    for name, result in found.items():
        _print(name, result)


def _with_budget(policy: Policy, rate: float | None) -> Policy:
    wanted = policy.budget.max_wrong_hit_rate if rate is None else rate
    if wanted is None:
        raise UsageError("the policy has no error budget: give --budget RATE, such as 0.01")
    if not 0 < wanted <= 0.5:
        raise UsageError(f"--budget must be above 0 and at most 0.5, not {wanted}")
    changed = policy.budget.model_copy(update={"max_wrong_hit_rate": wanted})
    return Policy.model_validate(policy.model_dump() | {"budget": changed.model_dump()})


def _streams(
    files: list[str] | None,
    corpus: Split | None,
    seeds: int,
    requests: int | None,
    near_misses: float | None,
    *,
    drift: bool,
    even: bool,
) -> dict[tuple[str, int], list[Asked]]:
    """By name and seed; a file has one order for all seeds."""
    from cachestack.evaluation.stream_corpus import NEAR_MISSES, clusters_of, draw
    from cachestack.evaluation.stream_file import read_stream

    if corpus is None:
        return {(file, 0): read_stream(file, requests) for file in files or ()}
    from cachestack.corpus.load import SOURCE, load_questions

    clusters = clusters_of(load_questions(corpus))
    share = None if even else NEAR_MISSES if near_misses is None else near_misses
    num = 20_000 if requests is None else requests
    return {
        (f"{SOURCE}/{corpus}", seed): draw(clusters, num, seed, near_misses=share, drift=drift) for seed in range(seeds)
    }


def _print(name: str, result: dict[str, Any]) -> None:
    from rich.markup import escape

    title = escape(f"{name}: budget {result['budget']:.1%}, held in {result['num_held']} of {result['num_seeds']}")
    table = plain_table(
        "seed", "requests", "exact hits", "hits by meaning", "wrong", "wrong per hit", "oracle", "audits", "at the end",
        title=title,
    )  # fmt: skip
    for seed in result["seeds"]:
        table.add_row(*_row(str(seed["seed"]), seed), _end(seed["classes"]))
    if result["num_seeds"] > 1:
        table.add_row(*_row("all", result), "")
    low, high = result["interval"]
    table.caption = (
        f"wrong per hit by meaning: {low:.2%} to {high:.2%} (95%), hits taken as independent; of all hits "
        f"{result['wrong_per_any_hit']:.3%}. Hits by meaning are {_share(result['share_of_oracle'])} of the best fixed "
        f"threshold's in hindsight, all hits {_share(result['share_of_oracle_all_hits'])}. With intents as labels, "
        "wrong hits are a lower bound."
    )
    table.caption_justify = "left"
    print_table(table)


def _row(name: str, counts: dict[str, Any]) -> tuple[str, ...]:
    return (
        name,
        f"{counts['requests']:,}",
        f"{counts['exact_hits']:,}",
        f"{counts['hits']:,}",
        f"{counts['wrong_hits']:,}",
        f"{counts['wrong_per_hit']:.2%}",
        f"{counts['oracle_hits']:,}",
        f"{counts['audits']:,} ({counts['audits_per_hit']:.1%})",
    )


def _end(classes: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {of['state']}" + ("" if of["threshold"] is None else f" from {of['threshold']:.2f}")
        for name, of in classes.items()
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
