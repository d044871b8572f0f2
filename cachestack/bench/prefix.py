"""`cachestack bench prefix`: the columns in paired, interleaved repetitions, and all else that a hit costs.

One repetition measures every column of every prefix once, beginning with another column each time. A ratio is taken
within repetitions, so that a machine that slows down for a while slows both sides of it. What is timed is compared too:
wrong results are no measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cachestack.bench.columns import Column, Ways
from cachestack.bench.forks import fork_cost
from cachestack.bench.lookup import lookup_cost
from cachestack.bench.machine import Machine
from cachestack.bench.operators import Operator, operator_shares
from cachestack.bench.peer import LlamaCpp
from cachestack.bench.prompt import FewShot, few_shot, load_material
from cachestack.bench.ratios import paired_ratio
from cachestack.bench.report import Prefix, PrefixReport
from cachestack.bench.rounds import Rounds
from cachestack.models.manifest import Report, report_nothing

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine

REPS = 15
TIME_LIMIT_S = 480.0
COLD_COLUMNS = ("whole", "cold")
MISS_COLUMNS = ("miss", "miss_keeping")  # of the shortest prompt only, where an overhead shows most
PROFILED = ("single", "packed")
MakePeer = Callable[[FewShot], LlamaCpp]


@dataclass(frozen=True, slots=True)
class Settings:
    """`cold_tokens`: further prefixes whose first run is timed, in every other repetition. No repetition begins that
    would end later than `time_limit_s`."""

    prefix_tokens: tuple[int, ...] = (167, 977)
    cold_tokens: tuple[int, ...] = (256, 512)
    suffix_tokens: int = 25
    reps: int = REPS
    max_pack_items: int | None = None
    num_lookups: int = 300
    time_limit_s: float = TIME_LIMIT_S
    quick: bool = False
    profile: bool = False


QUICK = Settings(prefix_tokens=(64,), cold_tokens=(), reps=2, max_pack_items=3, num_lookups=50, quick=True)


def bench_prefix(
    engine: TransformersEngine,
    settings: Settings,
    machine: Machine,
    *,
    make_peer: MakePeer | None = None,
    report: Report = report_nothing,
    timer: Callable[[], float] = time.perf_counter,
) -> PrefixReport:
    """Raises UsageError for a model whose KV cannot be kept or packed, or whose tokenizer the prompts do not fit."""
    began = timer()
    with ExitStack() as opened:
        main, extra = _prepared(engine, settings, report, timer)
        peers: list[LlamaCpp] = []
        for rounds in main if make_peer is not None else ():
            assert make_peer is not None, "the loop is empty without"
            peers.append(opened.enter_context(closing(make_peer(rounds.ways.prompts))))
            peers[-1].keep_prefix(rounds.ways.prompts.suffix(0))
            rounds.columns = (*rounds.columns, peer_column(peers[-1], rounds.ways.prompts))
        _run(main, extra, settings, report, timer, began)
        report("forks and look-ups", 0, 2)
        forks = fork_cost(engine, main[-1].ways)
        report("forks and look-ups", 1, 2)
        lookups = lookup_cost(num_lookups=settings.num_lookups)
        report("forks and look-ups", 2, 2)
        return PrefixReport(
            prefixes=tuple(_prefix_of(rounds, profile=settings.profile) for rounds in main),
            cold_by_length={
                len(rounds.ways.prompts.prefix): paired_ratio(rounds.times_ms["cold"], rounds.times_ms["whole"])
                for rounds in (*main, *extra)
            },
            fork=forks,
            lookup=lookups,
            machine=machine,
            peer=peers[-1].figures() if peers else None,
            quick=settings.quick,
            elapsed_s=timer() - began,
        )


def peer_column(peer: LlamaCpp, prompts: FewShot) -> Column:
    def run(index: int) -> torch.Tensor:
        return torch.from_numpy(peer.item(prompts.suffix(index)))[None]

    return Column("peer", run)


def _prepared(
    engine: TransformersEngine, settings: Settings, report: Report, timer: Callable[[], float]
) -> tuple[list[Rounds], list[Rounds]]:
    material = load_material()
    lengths = (*settings.prefix_tokens, *settings.cold_tokens)
    prepared: list[Rounds] = []
    for done, tokens in enumerate(lengths):
        report("preparing", done, len(lengths))
        prompts = few_shot(engine, tokens, settings.suffix_tokens, material)
        ways = Ways(engine, prompts, max_pack_items=settings.max_pack_items)
        names = COLD_COLUMNS if tokens in settings.cold_tokens else tuple(ways.columns)
        if tokens != settings.prefix_tokens[0]:
            names = tuple(name for name in names if name not in MISS_COLUMNS)
        prepared.append(Rounds(ways, tuple(ways.columns[name] for name in names), timer))
    report("preparing", len(lengths), len(lengths))
    return prepared[: len(settings.prefix_tokens)], prepared[len(settings.prefix_tokens) :]


def _run(
    main: Sequence[Rounds],
    extra: Sequence[Rounds],
    settings: Settings,
    report: Report,
    timer: Callable[[], float],
    began: float,
) -> None:
    everything = (*main, *extra)
    for done, rounds in enumerate(everything):
        report("warming up", done, len(everything))
        rounds.warm_up()
    report("warming up", len(everything), len(everything))
    slowest_s = 0.0
    for rep in range(settings.reps):
        report("repetitions", rep, settings.reps)
        rep_began = timer()
        if rep and rep_began - began + slowest_s > settings.time_limit_s:
            break
        for rounds in main if rep % 2 else everything:
            rounds.repeat(rep)
        slowest_s = max(slowest_s, timer() - rep_began)
    report("repetitions", settings.reps, settings.reps)


def _prefix_of(rounds: Rounds, *, profile: bool) -> Prefix:
    ways = rounds.ways
    return Prefix(
        prefix_tokens=len(ways.prompts.prefix),
        suffix_tokens=len(ways.prompts.suffix(0)),
        pack_items=ways.pack_items,
        times_ms=dict(rounds.times_ms),
        agreement=rounds.agreement,
        profile=_profiles(rounds) if profile else {},
    )


def _profiles(rounds: Rounds) -> dict[str, tuple[Operator, ...]]:
    def profile(name: str) -> tuple[Operator, ...]:
        return operator_shares(lambda: rounds.ways.columns[name].run(0))

    return {name: profile(name) for name in PROFILED}
