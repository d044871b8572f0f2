"""`cachestack warm`: what warming prompts gives: tokens, bytes, seconds, and what each request then saves."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

import typer

from cachestack.cli.options import ModelOption, PoliciesOption, TenantOption
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table, stage_bars, stderr_console
from cachestack.errors import UsageError
from cachestack.items import read_text

if TYPE_CHECKING:
    from cachestack.asking import Prompt
    from cachestack.prefix.base import PoolSizes
    from cachestack.warming import Warmed

NOTE = (
    "KV lives in the process that computed it: what was warmed here ends with this command. "
    "In a program, call stack.warm(...)."
)
MIB = 1024 * 1024


def command(
    prompt: Annotated[
        list[str],
        typer.Option(
            "--prompt",
            metavar="FILE",
            help="A system prompt; or a .json file: messages, or a structured prompt. Repeatable.",
        ),
    ],
    tenant: TenantOption = "default",
    system_only: Annotated[
        bool, typer.Option("--system-only", help="Of messages, only the leading system messages.")
    ] = False,
    pin_s: Annotated[
        float | None, typer.Option("--pin", metavar="SECONDS", help="Keep it from eviction for so long.")
    ] = None,
    model: ModelOption = None,
    policies: PoliciesOption = None,
    json: JsonOption = False,
) -> None:
    """Compute and keep the stable part of prompts, and show what that gives. It warms this process only.

    Exit status 1 if nothing could be kept of one of them.
    """
    from cachestack.warming import is_duration

    if not (pin_s is None or is_duration(pin_s)):
        raise UsageError(f"--pin takes a positive number of seconds, not {pin_s}")
    prompts = [_read(path, system_only=system_only) for path in prompt]
    from cachestack.stack import CacheStack

    with CacheStack.local(model=model, policies=policies, encoder="none") as stack, stage_bars("warm") as report:
        warmed: list[Warmed] = []
        for given in prompts:
            if len(prompts) > 1:
                report("prompts", len(warmed), len(prompts))
            warmed.append(stack.warm(given, tenant=tenant, pin_s=pin_s))
        if len(prompts) > 1:
            report("prompts", len(warmed), len(prompts))
        memory = stack.memory()
    if json:
        print_json(
            {
                "note": NOTE,
                "warmed": [_shown(p, w) for p, w in zip(prompt, warmed, strict=True)],
                "memory": asdict(memory),
            }
        )
    else:
        _print(prompt, warmed, memory)
        stderr_console().print(NOTE, markup=False, soft_wrap=True)
    if not all(w.num_tokens for w in warmed):
        raise typer.Exit(1)


def _read(path: str, *, system_only: bool) -> Prompt:
    """A text file is a system prompt; JSON is messages, or an object with the parts of a structured prompt."""
    text = read_text(path, what="a prompt")
    messages: Prompt = [{"role": "system", "content": text}]
    if path.lower().endswith(".json"):
        try:
            document = json_module.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is no JSON: {error}") from None
        if isinstance(document, dict):
            from cachestack.prompts import StructuredPrompt
            from cachestack.warming import STAND_IN

            parts = StructuredPrompt.from_json(document)
            messages = parts if parts.user_query is not None else parts.with_query(STAND_IN.content)
        elif isinstance(document, list):
            messages = document
        else:
            raise UsageError(f"{path} should hold a list of messages or a structured prompt")
    if not system_only:
        return messages
    from cachestack.asking import build_request

    leading = takewhile(lambda m: m.role in ("system", "developer"), build_request(messages).messages)
    if not (system := list(leading)):
        raise UsageError(f"{path} begins with no system message; leave --system-only")
    return system


def _shown(path: str, warmed: Warmed) -> dict[str, object]:
    shown = asdict(warmed)
    return (
        {"prompt": path}
        | shown
        | {
            "reason": warmed.reason.value,
            "pin_reason": warmed.pin_reason.value if warmed.pin_reason is not None else None,
        }
    )


def _print(paths: Sequence[str], warmed: Sequence[Warmed], memory: PoolSizes) -> None:
    table = plain_table("prompt", "tokens", "reused", "computed", "MiB", "seconds", "a request saves", "what")
    for path, w in zip(paths, warmed, strict=True):
        what = w.reason.value if w.pin_reason is None else f"{w.reason.value}, {w.pin_reason.value}"
        counts = (f"{n:,}" for n in (w.num_tokens, w.reused_tokens, w.computed_tokens))
        table.add_row(path, *counts, f"{w.num_bytes / MIB:.1f}", f"{w.seconds:.2f}", _saved(w.saved_s), what)
    print_table(table)
    if not memory.prefixes:
        return
    table = plain_table(
        "tenant", "tokens", "of these its own", "MiB", "uses", "last used", "a use saves", "pinned for", "users",
        title=f"KV by prefix: {memory.num_bytes / MIB:.1f} of {memory.max_bytes / MIB:.0f} MiB",
    )  # fmt: skip
    for p in memory.prefixes:
        pinned = f"{p.pinned_for_s:.0f} s" if p.pinned_for_s else "–"
        users = "the tenant's" if p.num_users is None else f"{p.num_users}"
        counts = (f"{n:,}" for n in (p.num_tokens, p.num_own_tokens))
        row = (f"{p.num_bytes / MIB:.1f}", f"{p.num_uses:,}", f"{p.idle_s:.0f} s ago", _saved(p.saved_s), pinned, users)
        table.add_row(p.tenant, *counts, *row)
    print_table(table)


def _saved(seconds: float) -> str:
    return f"about {seconds * 1000:.0f} ms" if seconds else "unknown"
