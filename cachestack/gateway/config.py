"""What the gateway is told: a YAML file, environment variables over it, options of the command over both."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from cachestack.access import AccessSettings
from cachestack.errors import ConfigError

PREFIX = "CACHESTACK_"
FILE_VARIABLE = "CACHESTACK_CONFIG"
_FROM_ENVIRONMENT = ("host", "port", "home", "store", "policies", "encoder", "max_body_bytes", "request_log", "otel")
_FILES = ("home", "policies")
_KEY_FILES = ("secret_file", "jwks_file")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineConfig(BaseModel):
    """One engine. Further keys are those of its kind."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: Literal["local", "openai", "anthropic"]
    model: str | None = None
    names: tuple[str, ...] = ()
    """Other model names that it answers to; `*` stands for anything."""

    @property
    def options(self) -> dict[str, Any]:
        """What only this kind of engine knows."""
        return dict(self.model_extra or {})


class GatewayConfig(_Section):
    """`engines` by name, the first is the default; none: the embedded model. `auth`: tokens; keys are always taken."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    home: Path | None = None
    store: str | None = Field(default=None, repr=False)
    """Where entries are, if not in `home`: `redis://…`; see docs/operations.md."""
    policies: Path | None = None
    encoder: str | None = None
    engines: dict[str, EngineConfig] = {}
    auth: AccessSettings = AccessSettings()
    request_log: bool = True
    """Each request's trace in `home`, for `cachestack tail`, without a word of question or answer."""
    request_log_text: bool = False
    otel: bool = False
    """OpenTelemetry spans, exported as the usual OTEL_ variables say."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names by which clients may call this machine while no key is needed."""
    max_body_bytes: int = Field(default=32 * 1024 * 1024, ge=1024)
    close_wait_s: float = Field(default=5.0, ge=0)
    """How long requests that are under way may take when the gateway is stopped."""

    @field_validator("engines", "auth", mode="before")
    @classmethod
    def _nothing_written(cls, value: Any) -> Any:
        return {} if value is None else value


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_config(
    file: str | Path | None = None, environ: Mapping[str, str] = os.environ, **options: Any
) -> GatewayConfig:
    """The file (default: `CACHESTACK_CONFIG`, else none), variables, and the options that are not None.

    Paths in the file are relative to it. Raises ConfigError that names file or variable, key, and what is allowed.
    """
    file = file or environ.get(FILE_VARIABLE) or None
    values = {} if file is None else _read(Path(file))
    origins = dict.fromkeys(values, str(file))
    for name in _FROM_ENVIRONMENT:
        if value := environ.get(PREFIX + name.upper()):
            values[name], origins[name] = value, PREFIX + name.upper()
    for name, value in options.items():
        if value is not None:
            values[name], origins[name] = value, f"--{name}"
    try:
        return GatewayConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_problem(item, origins) for item in error.errors())) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"configuration file {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigError(f"{path}: must map names to values; allowed: {', '.join(GatewayConfig.model_fields)}")
    for section, names in ((document, _FILES), (_jwt(document), _KEY_FILES)):
        for name in names:
            if isinstance(section.get(name), str):
                section[name] = str(path.parent / Path(section[name]).expanduser())
    return document


def _jwt(document: Mapping[str, Any]) -> dict[str, Any]:
    auth = document.get("auth")
    jwt = auth.get("jwt") if isinstance(auth, dict) else None
    return jwt if isinstance(jwt, dict) else {}


def _problem(item: Any, origins: Mapping[str, str]) -> str:
    location = [str(part) for part in item["loc"]]
    origin = origins.get(location[0], "") if location else ""
    place = ": ".join(part for part in (origin, ".".join(location)) if part)
    if item["type"] == "extra_forbidden":
        return f"{place}: unknown key; allowed: {', '.join(GatewayConfig.model_fields)}"
    given = "" if item["type"] == "value_error" or isinstance(item["input"], dict) else f" (given: {item['input']!r})"
    message = item["msg"].removeprefix("Value error, ")
    return f"{place}: {message}{given}" if place else message
