"""`cachestack stats`: what the layers did, tenant by tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from cachestack.cli.budget import state_line
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table, printable
from cachestack.cli.stores import opened_store, place_of_entries
from cachestack.errors import StoreError, UnknownTenant, UsageError
from cachestack.folders import home_folder
from cachestack.policy_set import PolicySet
from cachestack.semantic.budget.keeper import BUDGET_FOLDER, read_folder
from cachestack.semantic.budget.report import ClassReport, report_of
from cachestack.semantic.index_counts import kind_of
from cachestack.semantic.snapshots import INDEX_FOLDER, SnapshotFile, snapshot_files
from cachestack.snapshot import LayerStats, Quantiles, Snapshot, TenantStats
from cachestack.stats import Stats
from cachestack.stores.opening import open_sums


def command(
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant.")] = None,
    json: JsonOption = False,
) -> None:
    """Statistics of all processes that use CACHESTACK_HOME, since it was begun."""
    recorded = Stats(open_sums(None, home_folder()))
    try:
        snapshot = recorded.snapshot()
    finally:
        recorded.close()
    if tenant is not None:
        if tenant not in snapshot.by_tenant:
            known = ", ".join(sorted(snapshot.by_tenant)) or "none yet"
            raise UsageError(f"tenant {tenant!r} has no statistics in {home_folder()}; tenants there: {known}")
        snapshot = Snapshot({tenant: snapshot.by_tenant[tenant]})
    files = snapshot_files(home_folder() / INDEX_FOLDER) if tenant is None else []
    budgets = _budgets(tenant)
    kept = _store()
    if json:
        told = {name: {c: r.as_dict() for c, r in of.items()} for name, of in budgets.items()}
        document = snapshot.as_dict() | {"store": kept} | ({"index": _index(files)} if files else {})
        print_json(document | ({"budgets": told} if told else {}))
        return
    if not snapshot.by_tenant:
        typer.echo(f"no requests yet in {home_folder()}")
    for name, stats in sorted(snapshot.by_tenant.items()):
        _print_tenant(name, stats, budgets.get(name, {}))
    num_bytes = kept["num_bytes"]
    size = "" if num_bytes is None else f", {kept['num_entries']:,} entries, {num_bytes / 1e6:.1f} MB"
    typer.echo(f"store {printable(kept['ref'])}: {printable(kept['state'])}{size}")
    if files:
        in_files = _index(files)
        table = plain_table("", "", title="Index, as it was last saved (partitions of 2,000 vectors and more)")
        table.add_row("kind", f"{in_files['kind']}, {in_files['num_groups']:,} partitions")
        table.add_row("vectors", f"{in_files['num_vectors']:,}, {in_files['num_in_graphs']:,} of them in graphs")
        table.add_row("tombstones", f"{in_files['num_tombstones']:,}")
        table.add_row("builds", f"{in_files['num_builds']:,}")
        table.add_row("on disk", f"{in_files['num_bytes'] / 1e6:.1f} MB")
        print_table(table)


def _budgets(tenant: str | None) -> dict[str, dict[str, ClassReport]]:
    """Under the policies that CACHESTACK_POLICIES names, or the default ones."""
    kept = read_folder(home_folder() / BUDGET_FOLDER)
    if not kept:
        return {}
    loaded, found = PolicySet.load(None), {}
    for name, states in kept.items():
        with suppress(UnknownTenant):
            policy = loaded.policy(name).budget
            if tenant in (None, name):
                found[name] = {c: report_of(state, policy) for c, state in sorted(states.items())}
    return found


def _store() -> dict[str, Any]:
    """Where entries are, and how it is there. A store that does not answer leaves the statistics readable."""
    said: dict[str, Any] = {"ref": place_of_entries(), "state": "ok", "num_entries": None, "num_bytes": None}
    try:
        with opened_store() as store:
            size = store.size()
    except StoreError as error:
        return said | {"state": str(error)}
    return said | {"num_entries": size.num_entries, "num_bytes": size.num_bytes}


def _index(files: Sequence[SnapshotFile]) -> dict[str, Any]:
    num_vectors, num_in_graphs = sum(f.num_vectors for f in files), sum(f.num_in_graphs for f in files)
    return {
        "kind": kind_of(num_vectors, num_in_graphs),
        "num_groups": len(files),
        "num_vectors": num_vectors,
        "num_in_graphs": num_in_graphs,
        "num_tombstones": sum(f.num_dead for f in files),
        "num_builds": sum(f.num_builds for f in files),
        "num_bytes": sum(f.num_bytes for f in files),
    }


def _print_tenant(name: str, stats: TenantStats, budgets: Mapping[str, ClassReport]) -> None:
    table = plain_table("", "", title=f"Tenant {name}")
    rows = [
        ("requests", f"{stats.requests:,}"),
        ("engine calls", f"{stats.engine_calls:,} ({stats.engine_errors} errors)"),
        ("shared calls", f"{stats.shared_calls:,}"),
        ("semantic", _layer(stats.semantic)),
        ("prefix", _layer(stats.prefix)),
        ("fallbacks", f"{_reasons(stats.fallbacks)} (rate {stats.fallback_rate:.1%})"),
        ("answers kept", _reasons(stats.kept)),
        ("not kept", _reasons(stats.not_kept)),
        ("reported wrong", f"{stats.wrong_hit_reports:,}"),
        *([("audits", f"{stats.audits:,}, {stats.audit_cost:.6f} of the cost")] if stats.audits else []),
        ("tokens", f"{stats.tokens_prefilled:,} prefilled, {stats.tokens_reused:,} reused, "
                   f"{stats.tokens_generated:,} generated"),
        ("saved", f"{stats.seconds_saved:.1f} s, {stats.bytes_saved / 1e6:.1f} MB of KV not computed again"),
        ("latency", _seconds(stats.latency_s)),
        ("time to first token", _seconds(stats.ttft_s)),
        ("per token", _seconds(stats.per_token_s)),
        ("prompt tokens", _tokens(stats.prompt_tokens)),
    ]  # fmt: skip
    if stats.freshness:
        rows.append(("answers by freshness", _reasons(stats.freshness)))
    if stats.revalidations:
        rows.append(("made in the background", _reasons(stats.revalidations)))
    if stats.classified_items:
        rows.append(("classified items", f"{stats.classified_items:,}"))
    if stats.cost is not None:
        rows.append(
            ("cost", f"{stats.cost:.6f}, {stats.cost_per_request or 0:.8f} a request; saved {stats.cost_saved:.6f}")
        )
        rows.append(("priced by", ", ".join(stats.priced_by) or "not said"))
    rows += [(f"error budget, {of_class}", state_line(report)) for of_class, report in budgets.items()]
    for key, value in rows:
        table.add_row(key, value)
    print_table(table)


def _layer(layer: LayerStats) -> str:
    parts = [f"{layer.lookups:,} look-ups, hit rate {layer.hit_rate:.1%}"]
    parts += [f"hits {_reasons(layer.hits)}"] if layer.hits else []
    parts += [f"partial {layer.partials:,}"] if layer.partials else []
    parts += [f"misses {_reasons(layer.misses)}"] if layer.misses else []
    parts += [f"bypassed {_reasons(layer.bypasses)}"] if layer.bypasses else []
    return "; ".join(parts)


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.items()) or "none"


def _seconds(q: Quantiles) -> str:
    if q.p50 is None or q.p95 is None or q.p99 is None:
        return "–"
    return f"median {_time(q.p50)}, 95% {_time(q.p95)}, 99% {_time(q.p99)}"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _tokens(q: Quantiles) -> str:
    return "–" if q.p50 is None or q.p95 is None else f"median {q.p50:.0f}, 95% {q.p95:.0f}"
