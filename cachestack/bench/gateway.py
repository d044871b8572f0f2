"""`cachestack bench gateway`: exact hits against a bare route of the same server, misses, streams, memory.

The gateway is the command itself, in a process of its own, with a scripted upstream as its engine. In each round the
gateway and the bare route are loaded by turns, another one first each time; a ratio is taken within a round. Every
answer is checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from cachestack.bench.gateway_client import Address, Load, ask_all, ask_one, load, run
from cachestack.bench.gateway_material import Prepared, chat_request, kept_question, new_question
from cachestack.bench.gateway_report import GatewayReport, Growth, Misses, Pairs, Streams
from cachestack.bench.gateway_servers import BARE_MARK, Server, bare, gateway, scripted_upstream, streamed_text
from cachestack.bench.gateway_settings import Settings
from cachestack.bench.machine import Machine
from cachestack.errors import EngineError
from cachestack.models.manifest import Report, report_nothing

_MEMORY_CONNECTIONS = 16


def bench_gateway(
    settings: Settings,
    machine: Machine,
    *,
    report: Report = report_nothing,
    timer: Callable[[], float] = time.perf_counter,
) -> GatewayReport:
    """Raises EngineError where a server does not start or an answer cannot be kept."""
    began = timer()
    with ExitStack() as opened:
        report("servers", 0, 1)
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="cachestack-bench-")))
        upstream = opened.enter_context(scripted_upstream())
        served = opened.enter_context(gateway(folder, upstream))
        kept = [chat_request(kept_question(number)) for number in range(settings.num_kept)]
        num_bytes = _fill(served, kept)
        route = opened.enter_context(bare(num_bytes))
        report("servers", 1, 1)
        exact = _exact(served.address, route.address, kept, settings, report)
        misses = _misses(served.address, upstream.address, settings, report)
        streams = _streams(served.address, settings, report)
        growth = _growth(served, kept, settings, report)
        return GatewayReport(
            exact=exact,
            misses=misses,
            streams=streams,
            growth=growth,
            answer_bytes=num_bytes,
            rounds=settings.rounds,
            machine=machine,
            quick=settings.quick,
            elapsed_s=timer() - began,
        )


def _fill(served: Server, kept: Sequence[Prepared]) -> int:
    """Each question once; how long an answer is."""
    asked = run(partial(load, served.address, kept, 1, num_requests=len(kept)))
    if asked.num_wrong:
        raise EngineError(f"the gateway gave {asked.num_wrong} wrong answers to {len(kept)} questions")
    return len(run(partial(ask_one, served.address, kept[0])).body)


def _exact(
    served: Address, route: Address, kept: Sequence[Prepared], settings: Settings, report: Report
) -> dict[int, Pairs]:
    for_bare = [Prepared(request.data, BARE_MARK.decode()) for request in kept]
    sides = {"gateway": (served, kept), "bare": (route, for_bare)}
    total, done = len(settings.connections) * settings.rounds, 0
    found = {}
    for number in settings.connections:
        loads: dict[str, list[Load]] = {name: [] for name in sides}
        for turn in range(settings.rounds):
            report("exact hits", done, total)
            for name in list(sides)[:: 1 if turn % 2 else -1]:
                address, requests = sides[name]
                loads[name].append(run(partial(load, address, requests, number, seconds=settings.round_s)))
            done += 1
        found[number] = Pairs(loads["gateway"], loads["bare"])
    report("exact hits", total, total)
    return found


def _misses(served: Address, upstream: Address, settings: Settings, report: Report) -> Misses:
    times: dict[Address, list[float]] = {served: [], upstream: []}
    num_wrong = 0
    num_first = max(1, settings.num_misses // 10)  # not counted
    for number in range(-num_first, settings.num_misses):
        report("misses", max(0, number), settings.num_misses)
        request = chat_request(new_question("warning" if number >= 0 else "first", abs(number)))
        for address in (served, upstream)[:: 1 if number % 2 else -1]:
            answer = run(partial(ask_one, address, request))
            num_wrong += answer.status != 200 or request.mark not in answer.body
            if number >= 0:
                times[address].append(answer.seconds)
    report("misses", settings.num_misses, settings.num_misses)
    return Misses(times[upstream], times[served], num_wrong)


def _streams(served: Address, settings: Settings, report: Report) -> Streams:
    report("streams", 0, 1)
    num = settings.num_streams
    questions = [
        kept_question(number % settings.num_kept) if number % 2 else new_question("stop", number)
        for number in range(num)
    ]
    requests = [chat_request(question, stream=True) for question in questions]
    began = time.perf_counter()
    answers = run(partial(ask_all, served, requests))
    took = time.perf_counter() - began
    right = [
        answer.status == 200 and streamed_text(answer.body) == request.answer
        for answer, request in zip(answers, requests, strict=True)
    ]
    report("streams", 1, 1)
    return Streams(num, num - sum(right), took)


def _growth(served: Server, kept: Sequence[Prepared], settings: Settings, report: Report) -> Growth:
    num_parts, num_wrong = 10, 0
    first = run(partial(load, served.address, kept, _MEMORY_CONNECTIONS, num_requests=settings.num_first))
    before = served.resident_bytes()
    for part in range(num_parts):
        report("memory", part, num_parts)
        num = settings.num_for_memory // num_parts
        num_wrong += run(partial(load, served.address, kept, _MEMORY_CONNECTIONS, num_requests=num)).num_wrong
    after = served.resident_bytes()
    report("memory", num_parts, num_parts)
    grown = None if before is None or after is None else after - before
    return Growth(grown, settings.num_for_memory, first.num_wrong + num_wrong)
