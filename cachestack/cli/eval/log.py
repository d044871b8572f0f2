"""`cachestack eval log`: what a request log would have had from the cache, and which pairs a person should look at."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cachestack.build import DEFAULT_ENCODER, build_replay
from cachestack.cli.app import EXIT_INTERRUPTED
from cachestack.cli.eval.options import EncoderOption, PolicyOption, chosen_policy, open_encoder
from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table, stage_bars, warn
from cachestack.errors import InputFileError, UsageError
from cachestack.policy_set import PolicySet

if TYPE_CHECKING:
    from cachestack.evaluation.doubt import Doubt
    from cachestack.evaluation.log_file import BadLines
    from cachestack.evaluation.replay import LogReport

SHOWN = 20
SHOWN_BAD = 5


def evaluate_log(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSONL, CSV, or one question a line; - is stdin.")],
    format: Annotated[
        Literal["jsonl", "csv", "text"] | None,
        typer.Option("--format", help="Of the file; by default from its suffix or its first line."),
    ] = None,
    column: Annotated[
        str, typer.Option("--column", metavar="NAME", help="The column or key that holds the question.")
    ] = "text",
    policy: PolicyOption = None,
    policies: PoliciesOption = None,
    encoder: EncoderOption = DEFAULT_ENCODER,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N requests.")] = None,
    max_pairs: Annotated[int, typer.Option("--pairs", min=1, metavar="N", help="How many pairs to review.")] = 200,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the pairs to review as a page with tick boxes.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Ask a log again, in its order and at its times, without a model: what would have come from the cache?

    Without --policy each tenant of the log has its own policy of the file. Ctrl-C prints what was found so far.
    """
    from cachestack.evaluation.log_file import BadLines, read_requests

    if html is not None and not html.parent.is_dir():
        raise UsageError(f"there is no folder {str(html.parent)!r} for the page; make it, or give another file")
    chosen = PolicySet.load(policies)
    if policy is not None:
        chosen = PolicySet.of_one(chosen_policy(policy, policies, None), f"--policy {policy}")
    bad = BadLines()
    replay = build_replay(open_encoder(encoder), chosen, max_pairs=max_pairs)
    with stage_bars("log") as progress:
        report = replay.run(islice(read_requests(file, bad, column=column, format=format), limit), bad, progress)
    if not report.num_requests and not report.is_interrupted:
        problem = bad.named[0] if bad.named else "it is empty"
        raise InputFileError(f"{file}: none of its {bad.num_lines:,} lines is a request; the first: {problem}")
    if html is not None:
        _write_page(html, file, report, bad)
    if json:
        print_json(as_document(file, report, bad))
    else:
        _print(file, report, bad)
    if report.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def as_document(file: str, report: LogReport, bad: BadLines) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "file": file,
        "requests": report.num_requests,
        "tenants": len(report.tenants),
        "hits": {"exact": report.num_exact, "by_meaning": report.num_by_meaning},
        "hit_rate": report.hit_rate,
        "repeats": report.num_repeats,
        "decided_by": dict(report.decided.most_common()),
        "costs": {
            currency: {"without_cache": cost.all, "saved": cost.saved} for currency, cost in report.costs.items()
        },
        "requests_without_token_counts": report.num_estimated,
        "from": _moment(report.first_s),
        "to": _moment(report.last_s),
        "requests_without_time": report.num_without_time,
        "requests_out_of_order": report.num_backwards,
        "bad_lines": {"n": bad.num_lines, "first": bad.named},
        "interrupted": report.is_interrupted,
        "pairs": [_pair(doubt) for doubt in report.pairs],
    }


def _pair(doubt: Doubt) -> dict[str, Any]:
    from cachestack.evaluation.review_page import as_pair

    return as_pair(doubt) | {
        "served": doubt.served,
        "decided_by": doubt.decided_by,
        "similarity": doubt.similarity,
        "score": doubt.score,
        "threshold": doubt.threshold,
        "margin": round(doubt.margin, 4),
        "guard": doubt.guard,
        "certain": doubt.certain,
        "tenant": doubt.tenant,
        "places": [doubt.place_a, doubt.place_b],
        "times": doubt.times,
    }


def _facts(report: LogReport, bad: BadLines) -> list[tuple[str, str]]:
    """Names and values, for the terminal and for the page."""
    facts = [
        ("requests", f"{report.num_requests:,}"),
        ("tenants", f"{len(report.tenants):,}"),
        ("would have hit", f"{report.num_hits:,} ({report.hit_rate:.1%})"),
        ("  exactly", f"{report.num_exact:,}"),
        ("  by meaning", f"{report.num_by_meaning:,}"),
        ("asked before", f"{report.num_repeats:,} (the same question under the same contract, however long ago)"),
    ]
    for currency, cost in report.costs.items():
        facts.append(("saved (estimate)", f"{cost.saved:,.4f} of {cost.all:,.4f} {currency}"))
    if report.costs and report.num_estimated:
        facts.append(("", f"{report.num_estimated:,} requests without token counts: prompts by characters, no answers"))
    if report.first_s is not None:
        facts.append(("time", f"{_moment(report.first_s)} to {_moment(report.last_s)}"))
    if report.num_without_time:
        facts.append(("without a time", f"{report.num_without_time:,}: taken as of the request before"))
    if report.num_backwards:
        facts.append(("out of order", f"{report.num_backwards:,}: taken as of the request before"))
    if bad.num_lines:
        facts.append(("lines left out", f"{bad.num_lines:,}"))
    return facts


def _print(file: str, report: LogReport, bad: BadLines) -> None:
    from rich.markup import escape

    ended = " (interrupted: so far)" if report.is_interrupted else ""
    table = plain_table("", "", title=escape(file) + ended)
    for name, value in _facts(report, bad):
        table.add_row(name, escape(value))
    print_table(table)
    table = plain_table("decided by", "requests")
    for word, number in report.decided.most_common():
        table.add_row(escape(word), f"{number:,}")
    print_table(table)
    if report.pairs:
        shown = f"Pairs to review, the most doubtful first ({min(SHOWN, len(report.pairs))} of {len(report.pairs)})"
        table = plain_table("kept, then asked", "decided", "similarity", "score", title=shown)
        for doubt in report.pairs[:SHOWN]:
            texts = escape(f"{_short(doubt.a[-1].content)}\n{_short(doubt.b[-1].content)}")
            score = "" if doubt.score is None else f"{doubt.score:.3f}"
            decided = f"{'served' if doubt.served else 'missed'}\n{doubt.decided_by}"
            table.add_row(texts, escape(decided), f"{doubt.similarity:.3f}", score)
        print_table(table)
    for problem in bad.named[:SHOWN_BAD]:
        warn(f"left out: {problem}")
    if bad.num_lines > SHOWN_BAD:
        warn(f"left out: {bad.num_lines:,} lines in all")


def _short(text: str, length: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return f"{seconds:g} s"


def _write_page(path: Path, file: str, report: LogReport, bad: BadLines) -> None:
    from cachestack.evaluation.review_page import review_page

    page = review_page(f"What {file} would have had from the cache", _facts(report, bad), report.pairs)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputFileError(f"{path} cannot be written: {error.strerror or error}") from error
