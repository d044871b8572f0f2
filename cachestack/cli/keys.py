"""`cachestack keys`: API keys of the gateway, and what takes rights back."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cachestack.access.api_key import KeyRecord
from cachestack.access.key_store import KeyStore
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table, stderr_console
from cachestack.errors import UsageError
from cachestack.folders import home_folder

app = typer.Typer(no_args_is_help=True, help="API keys of the gateway, kept in CACHESTACK_HOME.")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@app.command("create")
def create_key(
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Whose cache and policy.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")] = None,
    role: Annotated[str | None, typer.Option("--role", metavar="NAME", help="In this role.")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="For the admin endpoints, and for nothing else.")] = False,
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", metavar="TIME", help="Such as 90d, 12h, 30m.")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="What it is for.")] = "",
    json: JsonOption = False,
) -> None:
    """Make a key and print it. It is shown this once: what is kept is a digest."""
    if tenant is None and not admin:
        raise typer.BadParameter("say whose key it is: --tenant NAME, or --admin for an administrator's")
    expires_in_s = None if expires_in is None else _seconds(expires_in)
    key, record = _store().create(
        "default" if tenant is None else tenant,
        user=user,
        role=role,
        kind="admin" if admin else "client",
        expires_in_s=expires_in_s,
        name=name,
    )
    if json:
        print_json({"key": key} | _row(record, time.time()))
        return
    typer.echo(key)
    whose = "admin key" if admin else f"key of tenant {record.tenant}"
    stderr_console().print(f"{whose}, id {record.key_id}; it is not shown again", markup=False, soft_wrap=True)


@app.command("list")
def list_keys(json: JsonOption = False) -> None:
    """All keys, those that were revoked too; of none is the secret known."""
    store, now_s = _store(), time.time()
    rows = [_row(record, now_s) | {"epoch": _epoch(store, record)} for record in store.records()]
    if json:
        print_json({"file": str(store.path), "keys": rows})
        return
    if not rows:
        typer.echo(f"no keys yet in {store.path}")
        return
    table = plain_table("id", "kind", "tenant", "user", "role", "epoch", "state", "used", "expires", "name")
    for row in rows:
        whose = (row["id"], row["kind"], row["tenant"], row["user"] or "–", row["role"] or "–", str(row["epoch"]))
        table.add_row(*whose, row["state"], _day(row["last_used_s"]), _day(row["expires_s"]), row["name"])
    print_table(table)


@app.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id from `cachestack keys list`.")],
    json: JsonOption = False,
) -> None:
    """Refuse a key from now on; every process that serves does so within a second."""
    record = _store().revoke(key)
    if json:
        print_json(_row(record, time.time()))
    else:
        typer.echo(f"{record.key_id} is revoked")


@app.command("raise-epoch")
def raise_epoch(
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="Of this tenant.")],
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user alone.")] = None,
    role: Annotated[str | None, typer.Option("--role", metavar="NAME", help="Of this role alone.")] = None,
    json: JsonOption = False,
) -> None:
    """Let nobody of a tenant, a user or a role meet what was kept before: for rights that were taken away."""
    epoch = _store().raise_epoch(tenant, user=user, role=role)
    if json:
        print_json({"tenant": tenant, "user": user, "role": role, "epoch": epoch})
    else:
        typer.echo(f"epoch {epoch}")


def _store() -> KeyStore:
    return KeyStore(home_folder())


def _epoch(store: KeyStore, record: KeyRecord) -> int:
    return store.epoch(record.tenant, record.user, record.role)


def _row(record: KeyRecord, now_s: float) -> dict[str, Any]:
    names = ("tenant", "user", "role", "kind", "name", "created_s", "expires_s", "revoked_s", "last_used_s")
    return {"id": record.key_id, "state": record.state(now_s)} | {name: getattr(record, name) for name in names}


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([1-9]\d{0,8})([smhd])", text.strip(), re.ASCII)
    if found is None:
        raise UsageError(f"--expires-in takes a whole number and a unit, such as 90d, 12h, 30m or 45s, not {text!r}")
    return float(found[1]) * _UNIT_S[found[2]]


def _day(seconds: float | None) -> str:
    return "–" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%y-%m-%d}"
