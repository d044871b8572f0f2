"""`cachestack eval`: how the semantic layer does on examples. One file a command; each registers itself here."""

from __future__ import annotations

import typer

from cachestack.cli.eval.admission import evaluate_admission
from cachestack.cli.eval.answers import evaluate_answers
from cachestack.cli.eval.conversations import evaluate_conversations
from cachestack.cli.eval.corpus import evaluate_corpus
from cachestack.cli.eval.freshness import evaluate_freshness
from cachestack.cli.eval.guards import evaluate_guards
from cachestack.cli.eval.log import evaluate_log
from cachestack.cli.eval.pairs import evaluate_pairs
from cachestack.cli.eval.stream import evaluate_stream

app = typer.Typer(no_args_is_help=True, help="How the semantic layer does on examples.")
app.command("pairs")(evaluate_pairs)
app.command("corpus")(evaluate_corpus)
app.command("conversations")(evaluate_conversations)
app.command("log")(evaluate_log)
app.command("guards")(evaluate_guards)
app.command("admission")(evaluate_admission)
app.command("answers")(evaluate_answers)
app.command("stream")(evaluate_stream)
app.command("freshness")(evaluate_freshness)
