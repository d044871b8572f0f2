"""From the configuration to engines, and to what they are called in requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.bodies.offered import Offered
from cachestack.build import DEFAULT_MODEL, remote_engines
from cachestack.engines.base import Engine, is_token_engine
from cachestack.errors import ConfigError
from cachestack.gateway.config import EngineConfig, GatewayConfig

_LOCAL_OPTIONS = ("device", "dtype")


def engines_from(config: GatewayConfig) -> tuple[Mapping[str, Engine], tuple[Offered, ...]]:
    """The engines by name, and what each is called. Nothing is loaded or connected to. Raises ConfigError."""
    chosen = config.engines or {"local": EngineConfig(kind="local")}
    engines: dict[str, Engine] = {}
    for name, engine in chosen.items():
        engines[name] = _local(name, engine) if engine.kind == "local" else _remote(name, engine, config)
    return engines, tuple(offered(name, engines[name], chosen[name].names) for name in engines)


def offered(name: str, engine: Engine, names: tuple[str, ...] = ()) -> Offered:
    """An engine without a model of its own takes whatever model is named, unless it is told which."""
    any_name = ("*",) if not engine.model and not names else names
    return Offered(name, engine.model, any_name, in_process=is_token_engine(engine))


def _local(name: str, config: EngineConfig) -> Engine:
    from cachestack.engines.transformers.engine import TransformersEngine

    options: dict[str, Any] = config.options
    for option in options:
        if option not in _LOCAL_OPTIONS:
            raise ConfigError(f"engines.{name}.{option}: unknown key; a local engine has {', '.join(_LOCAL_OPTIONS)}")
    return TransformersEngine(config.model or DEFAULT_MODEL, name=name, **options)


def _remote(name: str, engine: EngineConfig, config: GatewayConfig) -> Engine:
    given = {"kind": engine.kind, "model": engine.model, **engine.options}
    return remote_engines({name: given}, home=config.home)[name]
