"""`cachestack serve`: the HTTP gateway."""

from __future__ import annotations

from typing import Annotated

import typer

from cachestack.cli.output import stderr_console
from cachestack.errors import MissingExtra


def command(
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen; by default 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="NUMBER", help="By default 8080; 0 takes any that is free.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="YAML: engines, policies, keys; by default CACHESTACK_CONFIG."),
    ] = None,
) -> None:
    """Serve OpenAI's and Anthropic's HTTP interfaces; without a configuration, by the embedded model."""
    try:
        from cachestack.gateway.server import Gateway
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "gateway") from error
    from cachestack.gateway.config import load_config

    gateway = Gateway.of(load_config(config, host=host, port=port))
    gateway.open()
    for line in gateway.greeting():
        typer.echo(line)
    gateway.serve(on_ready=lambda: stderr_console().print("ready", markup=False))
