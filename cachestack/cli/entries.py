"""`cachestack entries`: look at cached answers, remove one, move them from folder to folder."""

from __future__ import annotations

import heapq
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, cell, plain_table, print_json, print_table, stage_bars
from cachestack.cli.stores import opened_store, place_of_entries
from cachestack.entries import Entry, Selector
from cachestack.errors import UsageError
from cachestack.folders import home_folder

if TYPE_CHECKING:
    from cachestack.stores.disk import DiskStore
    from cachestack.stores.tiered import TieredStore

app = typer.Typer(no_args_is_help=True, help="The cached answers in CACHESTACK_HOME.")
OfTenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant's.")]
WithTag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only those with this tag.")]
EntryId = Annotated[str, typer.Argument(metavar="ID", help="An entry's id (`hit_id`).")]


@app.command("list")
def list_entries(
    tenant: OfTenant = None,
    tag: WithTag = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many, the newest first.")] = 50,
    json: JsonOption = False,
) -> None:
    """The newest entries."""
    with opened_store() as store:
        _check_tenant(store, tenant)
        newest = heapq.nlargest(
            limit, store.select(Selector(tenant=tenant, tag=tag)), key=lambda e: (e.created_at_s, e.entry_id)
        )
        num_entries = store.size(tenant).num_entries
    now_s = time.time()
    if json:
        print_json({"num_entries": num_entries, "entries": [_plain(entry, now_s) for entry in newest]})
        return
    if not newest:
        typer.echo(f"no entries in {place_of_entries()}" if tag is None else f"no entry has the tag {tag!r}")
        return
    table = plain_table("id", "tenant", "age", "serves", "meaning", "question")
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    for entry in newest:
        question = entry.question if len(entry.question) <= 60 else entry.question[:57] + "..."
        table.add_row(
            cell(entry.entry_id),
            cell(_whose(entry)),
            _duration(now_s - entry.created_at_s),
            f"{_duration(entry.expires_at_s - now_s)} more" if entry.is_live(now_s) else "expired",
            "yes" if entry.vector is not None else "no",
            cell(question.replace("\n", " ")),
        )
    print_table(table)
    if num_entries > len(newest) and tag is None:
        typer.echo(f"{len(newest):,} of {num_entries:,}; --limit shows more")


@app.command("show")
def show_entry(entry_id: EntryId, tenant: OfTenant = None, json: JsonOption = False) -> None:
    """One entry, question and answer included."""
    with opened_store() as store:
        found = list(store.select(Selector(tenant=tenant, entry_id=entry_id)))
    if not found:
        raise _missing(entry_id, tenant)
    now_s = time.time()
    if json:
        print_json({"entries": [_plain(entry, now_s) for entry in found]})
        return
    for entry in found:
        table = plain_table("", "")
        for key, value in _plain(entry, now_s).items():
            if value not in (None, [], ""):
                table.add_row(key, cell(str(value)))
        print_table(table)


@app.command("remove")
def remove_entry(entry_id: EntryId, tenant: OfTenant = None, json: JsonOption = False) -> None:
    """Remove one entry, in all processes."""
    with opened_store() as store:
        removed = store.invalidate(Selector(tenant=tenant, entry_id=entry_id))
    if not removed:
        raise _missing(entry_id, tenant)
    if json:
        print_json({"removed": removed})
    else:
        typer.echo(f"{removed} removed")


@app.command("export")
def export_file(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Where to.")],
    tenant: OfTenant = None,
    tag: WithTag = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Write entries to a file, with their vectors: questions and answers are in it."""
    from cachestack.exchange import export_entries
    from cachestack.semantic.known_encoders import KnownEncoders

    with opened_store() as store, stage_bars("export") as report:
        _check_tenant(store, tenant)
        total = store.size(tenant).num_entries
        num_entries = export_entries(
            store.select(Selector(tenant=tenant, tag=tag)),
            file,
            KnownEncoders(home_folder() / "encoders"),
            overwrite=force,
            advance=lambda done: report("entries", done, max(done, total)),
        )
    if json:
        print_json({"file": str(file), "exported": num_entries})
    else:
        typer.echo(f"{num_entries:,} exported to {file}")


@app.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="What `export` wrote.")],
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="For this tenant, all of them.")
    ] = None,
    policies: PoliciesOption = None,
    json: JsonOption = False,
) -> None:
    """Add a file's entries to those that are here. An entry that is as new or newer stays; a file that is damaged or
    of another version is refused whole."""
    from cachestack.exchange import import_entries
    from cachestack.policy_set import PolicySet
    from cachestack.semantic.known_encoders import KnownEncoders

    policy_set = PolicySet.load(policies)
    if tenant == "":
        raise UsageError("--tenant must be a name")
    with opened_store() as store, stage_bars("import") as report:
        done = import_entries(
            file,
            store,
            KnownEncoders(home_folder() / "encoders"),
            max_bytes_of=lambda name: policy_set.policy(name).retention.max_bytes,
            now_s=time.time(),
            tenant=tenant,
            advance=lambda so_far, total: report("entries", so_far, total),
        )
    if json:
        print_json(
            {
                "num_entries": done.num_entries,
                "imported": done.imported,
                "exact_only": done.exact_only,
                "skipped": dict(done.skipped),
            }
        )
        return
    typer.echo(f"{done.imported:,} of {done.num_entries:,} imported")
    if done.exact_only:
        typer.echo(f"{done.exact_only:,} of them serve the exact same question only: their encoder is not the one here")
    for why, count in done.skipped.items():
        typer.echo(f"{count:,} left out: {why}")


def _check_tenant(store: DiskStore | TieredStore, tenant: str | None) -> None:
    if tenant is not None and tenant not in (known := store.tenants()):
        raise UsageError(
            f"tenant {tenant!r} has no entries in {place_of_entries()}; tenants there: {', '.join(known) or 'none yet'}"
        )


def _missing(entry_id: str, tenant: str | None) -> UsageError:
    whose = "there is no entry" if tenant is None else f"tenant {tenant!r} has no entry"
    return UsageError(f"{whose} {entry_id!r} in {place_of_entries()}")


def _plain(entry: Entry, now_s: float) -> dict[str, Any]:
    """Without vector and states, which are bytes; `export` has them."""
    values = entry.as_dict()
    del values["v"], values["vector"], values["states"]
    return values | {
        "by_meaning": entry.vector is not None,
        "is_live": entry.is_live(now_s),
        "age_s": round(now_s - entry.created_at_s, 3),
    }


def _whose(entry: Entry) -> str:
    partition = entry.partition
    walls = [f"{name} {value}" for name, value in (("user", partition.user), ("role", partition.role)) if value]
    return " · ".join([partition.tenant, *walls])


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
