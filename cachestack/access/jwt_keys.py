"""What tokens are checked with: each key with the one algorithm that it may be used for."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cachestack.access.config import JwtSettings
from cachestack.errors import ConfigError, MissingExtra
from cachestack.watched_file import WatchedFile

Algorithm = Literal["HS256", "RS256", "ES256"]
MIN_SECRET_BYTES = 32
MIN_RSA_BITS = 2048


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    algorithm: Algorithm
    key: Any
    kid: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyingKeys:
    """The keys of the moment; `version` changes with them."""

    keys: tuple[VerifyingKey, ...]
    version: int = 0

    def choose(self, kid: object, algorithm: object) -> VerifyingKey | None:
        """The key that the token's head names; without a name there must be only one for the algorithm."""
        fitting = [k for k in self.keys if k.algorithm == algorithm and (kid is None or k.kid == kid or k.kid is None)]
        named = [k for k in fitting if kid is not None and k.kid == kid] or fitting
        return named[0] if len(named) == 1 else None


class KeySource:
    """The keys that the settings name, followed through changes of their file. Raises ConfigError, MissingExtra."""

    def __init__(self, settings: JwtSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file: WatchedFile[tuple[VerifyingKey, ...]] | None = None
        if settings.secret_env is not None:
            text = os.environ.get(settings.secret_env)
            if text is None:
                raise ConfigError(f"jwt.secret_env: the environment variable {settings.secret_env} is not set")
            self._keys = (_secret(text.encode(), f"the environment variable {settings.secret_env}"),)
            return
        path, load = (
            (settings.jwks_file, _load_jwks) if settings.jwks_file is not None else (settings.secret_file, _load_secret)
        )
        assert path is not None, "the settings see to it"
        self._file = WatchedFile(path.absolute(), load, what="keys of tokens", clock=clock)

    def current(self) -> VerifyingKeys:
        if self._file is None:
            return VerifyingKeys(self._keys)
        return VerifyingKeys(*self._file.current())


def _load_secret(path: Path) -> tuple[VerifyingKey, ...]:
    return (_secret(_read(path), str(path)),)


def _secret(data: bytes, where: str) -> VerifyingKey:
    secret = data.strip()
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigError(f"the secret in {where} has {len(secret)} bytes; HS256 needs {MIN_SECRET_BYTES} or more")
    if secret.startswith((b"-----BEGIN", b"ssh-")):
        raise ConfigError(f"{where} holds a key of a pair, not a secret; give public keys as jwks_file")
    return VerifyingKey("HS256", secret)


def _load_jwks(path: Path) -> tuple[VerifyingKey, ...]:
    try:
        document = json.loads(_read(path))
        entries = document["keys"]
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise TypeError("keys must be a list of objects")
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f'{path} is no JSON Web Key Set ({{"keys": [...]}}): {error}') from error
    keys = tuple(key for entry in entries if (key := _public_key(entry, path)) is not None)
    if not keys:
        raise ConfigError(f"{path} holds no key for RS256 (RSA from {MIN_RSA_BITS} bits) or ES256 (P-256)")
    names = [key.kid for key in keys]
    if len(set(names)) != len(names):
        raise ConfigError(f"{path} holds two keys with the same kid, or several without one")
    return keys


def _public_key(entry: dict[str, Any], path: Path) -> VerifyingKey | None:
    """None for a key of another use or kind. Raises ConfigError for one that must not lie there, or is broken."""
    kid, kind = entry.get("kid"), entry.get("kty")
    if kind == "oct" or "d" in entry:
        raise ConfigError(f"{path}: key {kid!r} is a secret; a JSON Web Key Set here holds public keys only")
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]):
        return None
    algorithm: Algorithm
    match kind, entry.get("crv"):
        case "RSA", _:
            algorithm = "RS256"
        case "EC", "P-256":
            algorithm = "ES256"
        case _:
            return None
    if entry.get("alg", algorithm) != algorithm:
        return None
    if not (kid is None or isinstance(kid, str)):
        raise ConfigError(f"{path}: kid must be text, not {kid!r}")
    key = _decoded(entry, algorithm, path)
    if algorithm == "RS256" and key.key_size < MIN_RSA_BITS:
        raise ConfigError(f"{path}: key {kid!r} has {key.key_size} bits; at least {MIN_RSA_BITS} are needed")
    return VerifyingKey(algorithm, key, kid)


def _decoded(entry: dict[str, Any], algorithm: str, path: Path) -> Any:
    try:
        import jwt
    except ImportError:
        raise MissingExtra("PyJWT", "gateway") from None
    try:
        return jwt.PyJWK(entry, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: key {entry.get('kid')!r} cannot be read: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
