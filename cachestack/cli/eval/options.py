"""What the commands of `cachestack eval` share: whose policy, which encoder, which plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cachestack.build import NO_ENCODER
from cachestack.errors import ConfigError, UsageError
from cachestack.policy import Policy
from cachestack.policy_set import DEFAULT, PolicySet

if TYPE_CHECKING:
    from cachestack.semantic.base import Encoder

BATCH = 128
"""Texts encoded together: questions are short, and there are thousands."""

PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME|FILE",
        help="A tenant's policy, by its name in the policy file; `default` is what all start from. Or another file.",
    ),
]
PolicyTenantOption = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Whose policy of the file, where --policy names a file.")
]
EncoderOption = Annotated[
    str, typer.Option("--encoder", metavar="NAME", help="A known name, a folder, an id, or none.")
]
SweepOption = Annotated[
    Path | None,
    typer.Option("--sweep", metavar="PNG", help="Plot and print served against wrongly served over thresholds."),
]


def chosen_policy(policy: str | None, policies: str | None, tenant: str | None) -> Policy:
    """The policy that the options name. Raises ConfigError with the names that there are."""
    if policy is not None and Path(policy).suffix.lower() in (".yaml", ".yml"):
        return PolicySet.load(policy).policy(tenant or DEFAULT)
    loaded = PolicySet.load(policies)
    if policy is None:
        return loaded.policy(tenant or DEFAULT)
    names = (DEFAULT, *loaded.tenants)
    if policy not in names:
        if Path(policy).exists():
            return PolicySet.load(policy).policy(tenant or DEFAULT)
        raise ConfigError(f"no policy is named {policy!r} in {loaded.source}; it has: {', '.join(names)}")
    if tenant not in (None, policy):
        raise UsageError(f"--policy names {policy!r} and --tenant {tenant!r}; give one of them")
    return loaded.policy(policy)


def open_encoder(name: str) -> Encoder | None:
    """None for `none`. Loads nothing yet."""
    if name == NO_ENCODER:
        return None
    from cachestack.semantic.opening import open_encoder as opened

    return opened(name, batch_size=BATCH)


def check_plot(file: Path | None) -> None:
    """Raises MissingExtra without matplotlib, UsageError for a file that cannot be made; called before measuring."""
    if file is not None:
        from cachestack.bench.plot import require_matplotlib

        require_matplotlib(file)
