"""`cachestack eval stream`: requests in order, under an error budget, against the best fixed threshold in hindsight."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    from rich.table import Table

    from cachestack.evaluation.judging import Report
    from cachestack.evaluation.stream_material import Asked
    from cachestack.evaluation.stream_replay import Fixed


def evaluate_stream(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE...", help="JSONL with text or messages, and label.")
    ] = None,
    corpus: Annotated[
        Split | None, typer.Option("--corpus", help="Streams made from this part of the corpus, one a seed.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="RATE", help="Wrong hits per served hit, such as 0.01.")
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
    plot: Annotated[Path | None, typer.Option("--plot", metavar="PNG", help="Rates, hits and threshold over time.")] = (
        None
    ),
    json: JsonOption = False,
) -> None:
    """Ask in order; the engine's answer is the label, and the budget sees those of audits and of misses only.

    Counted twice: over all served hits, and over those by meaning alone, which is stricter and what the budget itself
    acts on. Where labels are intents, not answers, two requests of one label may need different answers: the rate of
    wrong hits is then a lower bound.
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
    from cachestack.evaluation.stream_replay import Order, at_all_fixed, replay
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
        names = tuple(dict.fromkeys(name for name, _ in streams))
        replays = {(name, seed): orders.get((name, seed)) or orders[name, 0] for name in names for seed in range(seeds)}
        done, total = 0, sum(len(order.numbers) for order in replays.values())
        tried: dict[int, list[Fixed]] = {}
        for name in names:
            results[name] = []
            for seed in range(seeds):
                order = replays[name, seed]
                run = replay(material, order, chosen, seed, partial(_asked, report, done, total))
                if id(order) not in tried:  # a file has one order for all seeds
                    tried[id(order)] = at_all_fixed(material, order)
                results[name].append(SeedResult(seed, run, tried[id(order)]))
                done += run.requests
    found = {name: summarise(some, rate) for name, some in results.items()}
    if plot is not None:
        from cachestack.evaluation.stream_plot import plot_streams

        plot_streams([r for some in results.values() for r in some], rate, plot, drift=drift)
    if json:
        print_json({"streams": found} if len(found) > 1 else next(iter(found.values())))
        return
    for name, result in found.items():
        _print(name, result)


def _asked(report: Report, before: int, total: int, num: int) -> None:
    report("replay", before + num, total)


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
    strict = result["by_meaning"]
    title = f"{name}: budget {result['budget']:.1%} of all served hits, held in {_held(result, result)}"
    columns: tuple[str, ...] = (
        "seed",
        "requests",
        "exact",
        "hits",
        "wrong",
        "wrong per hit",
        "held",
        "oracle",
        "audits",
    )
    table = _table(title, columns, result, lambda of: of, ("requests", "exact_hits"))
    table.caption = (
        f"Exact and by meaning. {_interval(result)} Hits are {_share(result['share_of_oracle'])} of those of the best "
        f"fixed threshold that holds this budget in hindsight; without any by meaning it would have been "
        f"{result['exact_only_hits']:,}, since what is not served is stored and hits exactly from then on."
    )
    print_table(table)
    title = f"The same, hits by meaning alone (what the budget acts on): held in {_held(strict, result)}"
    columns = ("seed", "hits", "wrong", "wrong per hit", "held", "oracle", "audits", "at the end")
    table = _table(title, columns, result, lambda of: of["by_meaning"], end=lambda of: _end(of["classes"]))
    table.caption = (
        f"{_interval(strict)} Hits are {_share(strict['share_of_oracle'])} of those of the best fixed threshold that "
        "holds the budget by meaning in hindsight. With intents as labels, wrong hits are a lower bound."
    )
    print_table(table)


def _table(
    title: str,
    columns: tuple[str, ...],
    result: dict[str, Any],
    part: Callable[[dict[str, Any]], dict[str, Any]],
    counts: tuple[str, ...] = (),
    end: Callable[[dict[str, Any]], str] | None = None,
) -> Table:
    from rich.markup import escape

    table = plain_table(*columns, title=escape(title))
    table.caption_justify = "left"
    last = [("all", result)] if result["num_seeds"] > 1 else []
    for name, of in [(str(seed["seed"]), seed) for seed in result["seeds"]] + last:
        shown = part(of)
        cells = [f"{shown[count]:,}" for count in counts] + [
            f"{shown['hits']:,}",
            f"{shown['wrong_hits']:,}",
            f"{shown['wrong_per_hit']:.3%}",
            "yes" if shown["held"] else "no",
            f"{shown['oracle_hits']:,}",
            f"{shown['audits']:,} ({shown['audits_per_hit']:.2%})",
        ]
        if end is not None:
            cells.append(end(of) if "classes" in of else "")
        table.add_row(name, *cells)
    return table


def _held(of: dict[str, Any], result: dict[str, Any]) -> str:
    return f"{of['num_held']} of {result['num_seeds']}"


def _interval(of: dict[str, Any]) -> str:
    low, high = of["interval"]
    return f"Wrong per hit: {low:.3%} to {high:.3%} (95%, hits taken as independent)."


def _end(classes: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {of['state']}" + ("" if of["threshold"] is None else f" from {of['threshold']:.2f}")
        for name, of in classes.items()
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
