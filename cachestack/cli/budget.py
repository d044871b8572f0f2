"""`cachestack budget`: the error budgets, their states, and what each threshold would do."""

from __future__ import annotations

from typing import Annotated

import typer

from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table
from cachestack.errors import UnknownTenant, UsageError
from cachestack.folders import home_folder
from cachestack.policy_set import PolicySet
from cachestack.semantic.budget.keeper import BUDGET_FOLDER, read_folder
from cachestack.semantic.budget.report import ClassReport, report_of


def command(
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant.")] = None,
    policies: PoliciesOption = None,
    json: JsonOption = False,
) -> None:
    """Of all processes that use CACHESTACK_HOME. In shadow mode: what each threshold would have served."""
    loaded = PolicySet.load(policies)
    found: dict[str, dict[str, ClassReport]] = {}
    for name, states in read_folder(home_folder() / BUDGET_FOLDER).items():
        try:
            policy = loaded.policy(name).budget
        except UnknownTenant:
            continue
        if policy.is_on:
            found[name] = {of: report_of(state, policy) for of, state in sorted(states.items())}
    if tenant is not None and tenant not in found:
        raise UsageError(f"tenant {tenant!r} has no error budget in {home_folder()}; there are: {_names(found)}")
    found = found if tenant is None else {tenant: found[tenant]}
    if json:
        print_json({"budgets": {name: {c: r.as_dict() for c, r in of.items()} for name, of in found.items()}})
        return
    if not found:
        typer.echo(f"no error budgets yet in {home_folder()}; a policy sets one with budget.max_wrong_hit_rate")
    for name, classes in found.items():
        for of_class, report in classes.items():
            print_report(name, of_class, report)


def print_report(tenant: str, of_class: str, report: ClassReport) -> None:
    from rich.markup import escape

    title = f"Tenant {escape(tenant)}, {escape(of_class)}: {state_line(report)}"
    table = plain_table("threshold", "expected wrong", "compared", "wrong", "would have served", "wrong", title=title)
    for row in report.thresholds:
        mark = " ← in force" if row.in_force else ""
        table.add_row(
            f"{row.threshold:.2f}{mark}",
            f"{row.expected:.2%}",
            f"{row.labels:,.0f}",
            f"{row.wrong:,.0f}",
            f"{row.shadow_hits:,}",
            f"{row.shadow_wrong:,}",
        )
    table.caption = "few labels: the strict beginning holds" if report.has_few_labels else None
    print_table(table)


def state_line(report: ClassReport) -> str:
    low, high = report.interval
    at = "nothing is served by meaning" if report.threshold is None else f"threshold {report.threshold:.2f}"
    return (
        f"{report.state} ({report.why}), {at}; budget {report.budget:.1%}, wrong hits {low:.1%} to {high:.1%} of "
        f"{report.watched:,}; {report.audits:,} audits, {report.audits_wrong:,} wrong, "
        f"{report.audits_unknown:,} unknown; "
        f"reported {report.reported_wrong:,} wrong, {report.reported_right:,} right"
    )


def _names(found: dict[str, dict[str, ClassReport]]) -> str:
    return ", ".join(sorted(found)) or "none"
