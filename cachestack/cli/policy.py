"""`cachestack policy`: check a policy file, and show what holds for a tenant and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, plain_table, print_error, print_json, print_table
from cachestack.errors import PolicyError
from cachestack.policy_set import PolicySet

app = typer.Typer(no_args_is_help=True, help="What each tenant's policy says.")


@app.command("check")
def check_policies(
    path: Annotated[Path, typer.Argument(help="A policy file, or a folder of them.")],
    json: JsonOption = False,
) -> None:
    """Check files without using them. Exit status 1 if one is wrong."""
    files = sorted(path.glob("*.y*ml")) if path.is_dir() else [path]
    if not files:
        raise PolicyError(f"{path} holds no .yaml file")
    results = [_check(file) for file in files]
    if json:
        print_json({"files": {str(file): result for file, result in zip(files, results, strict=True)}})
    else:
        for file, result in zip(files, results, strict=True):
            if result["ok"]:
                typer.echo(f"{file}: ok ({', '.join(result['tenants']) or 'default only'})")
            for error in result["errors"]:
                print_error(error)
    if not all(result["ok"] for result in results):
        raise typer.Exit(1)


@app.command("show")
def show_policy(
    tenant: Annotated[str, typer.Argument(help="A tenant's name.")],
    policies: PoliciesOption = None,
    json: JsonOption = False,
) -> None:
    """The effective policy of a tenant, and where each value comes from."""
    policy_set = PolicySet.load(policies)
    values = policy_set.effective(tenant)
    if json:
        rows = {row.key: {"value": row.value, "origin": row.origin} for row in values}
        print_json({"tenant": tenant, "source": policy_set.source, "values": rows})
        return
    table = plain_table("key", "value", "from", title=f"Policy of {tenant}")
    for row in values:
        table.add_row(row.key, _shown(row.value), row.origin)
    print_table(table)


def _check(file: Path) -> dict[str, Any]:
    try:
        policy_set = PolicySet.load(file)
    except PolicyError as error:
        return {"ok": False, "tenants": [], "errors": str(error).splitlines()}
    return {"ok": True, "tenants": list(policy_set.tenants), "errors": []}


def _shown(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(map(str, value)) or "none"
        case _:
            return str(value)
