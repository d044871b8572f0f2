"""From a policy's name of a verifier to the verifier."""

from __future__ import annotations

from collections.abc import Mapping

from cachestack.engines.base import Engine
from cachestack.errors import ConfigError
from cachestack.semantic.verifiers.base import TextVerifier
from cachestack.semantic.verifiers.shelf import VerifierShelf


def shelf_of(engines: Mapping[str, Engine] | None = None) -> VerifierShelf:
    """All that can be named: `cross_encoder`, `cross_encoder:NAME`, and `judge:ENGINE` for each of `engines`."""
    known = engines or {}
    return VerifierShelf(lambda name: _make(name, known))


def _make(name: str, engines: Mapping[str, Engine]) -> TextVerifier:
    kind, _, of = name.partition(":")
    if kind == "cross_encoder":
        if of:
            from cachestack.semantic.verifiers.other_cross_encoder import OtherCrossEncoder

            return OtherCrossEncoder(of)
        from cachestack.semantic.verifiers.cross_encoder import CrossEncoder

        return CrossEncoder()
    if kind == "judge":
        from cachestack.semantic.verifiers.judge import Judge

        if of not in engines:
            raise ConfigError(f"the verifier {name!r} names no engine; there are: {', '.join(engines) or 'none'}")
        return Judge(engines[of])
    raise ConfigError(f"{name!r} can only be the first of `verifiers`")
