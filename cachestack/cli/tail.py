"""`cachestack tail`: the last requests, and those that come."""

from __future__ import annotations

import json as json_module
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from cachestack.cli.output import JsonOption, is_encodable, print_json, printable, warn
from cachestack.errors import UsageError
from cachestack.folders import home_folder
from cachestack.observing.log_reader import Line, LogReader
from cachestack.observing.request_log import REQUESTS_FOLDER, log_files

POLL_S = 0.25


def command(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with those that come, until Ctrl-C.")] = False,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant's.")] = None,
    num: Annotated[int, typer.Option("--num", "-n", min=0, help="How many of the last ones.")] = 20,
    json: JsonOption = False,
) -> None:
    """Requests from the log in CACHESTACK_HOME, of all processes: what was served from where, and why.

    The log is off unless a stack is built with `request_log=True`. With --follow, --json prints a line a request.
    """
    folder = home_folder() / REQUESTS_FOLDER
    if not follow and not log_files(folder):
        raise UsageError(f"{folder} has no request log; build the stack with request_log=True to have one")
    reader = LogReader(folder)
    last = deque((line for line in reader.new() if _is_of(line, tenant)), maxlen=num)
    if json and not follow:
        print_json({"requests": list(last), "skipped_lines": reader.num_skipped})
        return
    show = _print_json_line if json else _print_line
    for line in last:
        show(line)
    if reader.num_skipped:
        warn(f"{reader.num_skipped} lines of the log could not be read")
    if follow:
        for line in following(reader):
            if _is_of(line, tenant):
                show(line)


def following(reader: LogReader, sleep: Callable[[float], None] = time.sleep) -> Iterator[Line]:
    """Lines as they come, without end."""
    while True:
        yield from reader.new()
        sleep(POLL_S)


def _is_of(line: Line, tenant: str | None) -> bool:
    return tenant is None or line.get("tenant") == tenant


def _print_json_line(line: Line) -> None:
    sys.stdout.write(json_module.dumps(line) + "\n")
    sys.stdout.flush()


def _print_line(line: Line) -> None:
    text = shown(line)
    if not is_encodable(text, sys.stdout.encoding or "utf-8"):
        text = text.encode("ascii", "backslashreplace").decode()
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def shown(line: Line) -> str:
    """One line for people: when, whose, from where, how long, why, and the question where it was kept."""
    steps: list[Any] = line.get("steps") or []
    reasons = [str(s.get("reason")) for s in steps if s.get("layer") in ("semantic", "prefix", "fallback")]
    if line.get("error"):
        reasons.append(str(line["error"]))
    clock = time.strftime("%H:%M:%S", time.localtime(float(line.get("at_s", 0))))
    seconds = float(line.get("seconds", 0))
    took = f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
    tokens = f"{line.get('prompt_tokens', 0)}+{line.get('completion_tokens', 0)}"
    columns = (clock, f"{line.get('tenant')!s:<16}", f"{line.get('outcome')!s:<9}", f"{took:>9}", f"{tokens:>9}")
    text = f"  {line['question']!r}" if "question" in line else ""
    return printable(f"{'  '.join(columns)}  {', '.join(reasons)}  {line.get('request_id')}{text}")
