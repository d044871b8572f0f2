"""How credentials are checked: the settings of API keys and of JSON Web Tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from cachestack.policy import Section

ClaimName = Annotated[str, Field(min_length=1)]


class ClaimNames(Section):
    """Which claims of a token say who asks."""

    tenant: ClaimName = "tenant"
    """Needed in every token."""

    user: ClaimName | None = "sub"
    role: ClaimName | None = "role"
    """Text, or a list of one. A token that names several roles is refused: each would open a cache of its own."""

    epoch: ClaimName | None = "epoch"
    """A whole number that never falls: best the time at which rights of anybody in the tenant were changed last."""


class JwtSettings(Section):
    """Tokens of one issuer, signed either with a shared secret (HS256) or with a key pair (RS256, ES256)."""

    issuer: Annotated[str, Field(min_length=1)]
    """What `iss` must say."""

    audience: Annotated[str, Field(min_length=1)]
    """What `aud` must say or hold."""

    secret_file: Path | None = None
    """A file with the secret for HS256: at least 32 bytes; white space around it does not count."""

    secret_env: str | None = None
    """Or the environment variable that holds it."""

    jwks_file: Path | None = None
    """A JSON Web Key Set with public keys: RSA from 2048 bits (RS256) and P-256 (ES256). Read again when it changes."""

    leeway_s: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)] = 10.0
    """By how much clocks may differ."""

    claims: ClaimNames = ClaimNames()

    @model_validator(mode="after")
    def _one_kind_of_key(self) -> Self:
        given = [n for n in ("secret_file", "secret_env", "jwks_file") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of secret_file, secret_env, jwks_file (given: {', '.join(given) or 'none'}): "
                "with a secret and public keys beside each other, a public key could be taken for a secret"
            )
        return self


class AccessSettings(Section):
    """How callers prove who they are. API keys are always taken; tokens where `jwt` is set."""

    jwt: JwtSettings | None = None
