"""`cachestack eval`: how the semantic layer does on examples. One file a command; each registers itself here."""

from __future__ import annotations

import typer

from cachestack.cli.eval.corpus import evaluate_corpus
from cachestack.cli.eval.guards import evaluate_guards
from cachestack.cli.eval.log import evaluate_log
from cachestack.cli.eval.pairs import evaluate_pairs

app = typer.Typer(no_args_is_help=True, help="How the semantic layer does on examples.")
app.command("pairs")(evaluate_pairs)
app.command("corpus")(evaluate_corpus)
app.command("log")(evaluate_log)
app.command("guards")(evaluate_guards)
