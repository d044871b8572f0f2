"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

PoliciesOption = Annotated[
    str | None,
    typer.Option(
        "--policies", metavar="FILE", envvar="CACHESTACK_POLICIES", help="Policy file; by default the built-in one."
    ),
]
TenantOption = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose policy and whose cache.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME", help="A known name, a Hugging Face id or a folder; by default the embedded model."
    ),
]
