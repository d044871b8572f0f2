"""`cachestack ask`: one request from the shell."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from cachestack.cli.options import ModelOption, PoliciesOption, TenantOption
from cachestack.cli.output import JsonOption, print_json, stderr_console
from cachestack.stack import CacheStack


def command(
    prompt: Annotated[str, typer.Argument(help="The question; - reads it from standard input.")],
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="The system prompt.")] = None,
    tenant: TenantOption = "default",
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Who asks, where users are walls.")] = None,
    role: Annotated[str | None, typer.Option("--role", metavar="NAME", help="As what, where roles are walls.")] = None,
    model: ModelOption = None,
    policies: PoliciesOption = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="0 or nothing: greedy.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option("--max-new-tokens", help="Default: the policy's.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what would happen; do not do it.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Print the trace to stderr.")] = False,
    json: JsonOption = False,
) -> None:
    """Answer one request, through all layers, with the embedded model; streamed to stdout."""
    text = sys.stdin.read() if prompt == "-" else prompt
    options: dict[str, Any] = {
        "system": system, "tenant": tenant, "user": user, "role": role,
        "temperature": temperature, "max_new_tokens": max_new_tokens,
    }  # fmt: skip
    with CacheStack.local(model=model, policies=policies) as stack:
        if explain:
            explained = stack.explain(text, **options)
            if json:
                print_json({"would": explained.would, "answer": explained.answer, "trace": explained.trace.as_dict()})
            else:
                typer.echo(str(explained))
            return
        with stack.stream(text, **options) as stream:
            for chunk in stream:
                if not json:
                    sys.stdout.write(chunk.text)
                    sys.stdout.flush()
        response = stream.response
        assert response is not None, "a stream read to its end has a response"
        if json:
            usage = response.usage
            print_json(
                {
                    "text": response.text,
                    "finish_reason": response.finish_reason,
                    "hit_id": response.hit_id,
                    "usage": {
                        "prompt_tokens": usage.prompt_tokens,
                        "cached_tokens": usage.cached_tokens,
                        "completion_tokens": usage.completion_tokens,
                    },
                    "trace": response.trace.as_dict(),
                }
            )
        else:
            typer.echo()
        if trace:
            stderr_console().print(str(response.trace), markup=False, soft_wrap=True)
