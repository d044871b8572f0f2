"""The `cachestack` command: gathers the commands, and turns errors into exit statuses.

A command lives in `cachestack/cli/NAME.py` and offers either `app`, a `typer.Typer` of subcommands, or a
function `command`. Exit status: 0 done; 1 a check that was asked for failed; 2 a wrong call, or an error that is
named on stderr; 130 interrupted.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cachestack import __version__
from cachestack.cli.output import print_error, stderr_console
from cachestack.errors import CacheStackError

COMMANDS = (
    "demo", "serve", "ask", "classify", "measure", "warm", "lint", "bench",
    "eval", "corpus", "policy", "keys", "stats", "budget", "report", "top", "tail", "explain", "entries", "invalidate",
    "models", "doctor", "backup", "restore", "migrate",
)  # fmt: skip
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def build_app(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """The application with these commands. Importing them loads no model library."""
    app = typer.Typer(
        name="cachestack",
        help="A semantic cache, a prefix KV cache and decoding for language models, one policy a tenant.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in commands:
        loaded = importlib.import_module(f"cachestack.cli.{name}")
        if isinstance(subcommands := getattr(loaded, "app", None), typer.Typer):
            app.add_typer(subcommands, name=name)
        else:
            app.command(name)(loaded.command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"cachestack {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options of the command itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: `sys.argv`); returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    word = next((argument for argument in arguments if not argument.startswith("-")), None)
    commands = (word,) if word in COMMANDS else COMMANDS  # only what is called is imported; help needs them all
    try:
        build_app(commands)(arguments, prog_name="cachestack")
    except CacheStackError as error:
        print_error(str(error))
        return EXIT_ERROR
    except OSError as error:  # a disk that is full, say, under the file that stdout goes to
        print_error(f"the operating system refused: {error}")
        _drop_stdout()
        return EXIT_ERROR
    except KeyboardInterrupt:
        status: object = EXIT_INTERRUPTED
    except SystemExit as stop:
        status = stop.code
    else:
        status = 0
    if status == EXIT_INTERRUPTED:
        stderr_console().print("interrupted")
    return status if isinstance(status, int) else int(status is not None)


def _drop_stdout() -> None:
    """What could not be written is not tried again when the interpreter ends."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        sys.stdout = io.StringIO()


def run() -> None:
    """The entry point of the installed command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an answer that the terminal cannot show is no crash
    if sys.stdout is None:  # closed by whoever started us
        print_error("standard output is closed: there is nowhere to print to; send it to /dev/null instead")
        sys.exit(EXIT_ERROR)
    sys.exit(main())
