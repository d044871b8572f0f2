"""Remote engines as a configuration file names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from cachestack.engines.remote.anthropic import ANTHROPIC_URL, AnthropicEngine
from cachestack.engines.remote.breaker import CircuitBreaker
from cachestack.engines.remote.engine import RemoteEngine
from cachestack.engines.remote.openai import OPENAI_URL, OpenAIEngine
from cachestack.engines.remote.prompt_caching import Provider
from cachestack.engines.remote.retrying import Retries, Timeouts
from cachestack.errors import ConfigError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_TIMES, _RETRIES = Timeouts(), Retries()


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class TimeoutsConfig(_Part):
    connect_s: Positive = _TIMES.connect_s
    read_s: Positive = _TIMES.read_s
    """Between two pieces of an answer, and before the first."""
    total_s: Positive = _TIMES.total_s
    """The whole call, retries included."""


class RetriesConfig(_Part):
    num_retries: Annotated[int, Field(ge=0, le=10)] = _RETRIES.num_retries
    base_s: NotNegative = _RETRIES.base_s
    cap_s: NotNegative = _RETRIES.cap_s
    retry_after_cap_s: NotNegative = _RETRIES.retry_after_cap_s


class BreakerConfig(_Part):
    num_failures: Annotated[int, Field(ge=1)] = 5
    """Failures in a row that open it."""
    open_s: Positive = 30.0
    """How long the engine is then left alone."""


class _EngineConfig(_Part):
    model: str | None = None
    """Sent instead of whatever model a request names; None: the request's."""
    api_key_env: str | None = None
    """The environment variable with the key; keys do not belong into files."""
    headers: dict[str, str] = {}
    prompt_caching: bool = True
    long_lived_prefixes: bool = False
    timeouts: TimeoutsConfig = TimeoutsConfig()
    retries: RetriesConfig = RetriesConfig()
    breaker: BreakerConfig = BreakerConfig()


class OpenAIConfig(_EngineConfig):
    kind: Literal["openai"]
    base_url: str = OPENAI_URL
    provider: Provider | None = None
    """None: `openai` at OpenAI's own address, else `generic`."""
    stream_usage: bool | None = None


class AnthropicConfig(_EngineConfig):
    kind: Literal["anthropic"]
    base_url: str = ANTHROPIC_URL
    default_max_tokens: Annotated[int, Field(ge=1)] = 4096


EngineConfig = Annotated[OpenAIConfig | AnthropicConfig, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[OpenAIConfig | AnthropicConfig] = TypeAdapter(EngineConfig)


def engines_from_config(config: Mapping[str, Any], *, secret: bytes | None = None) -> dict[str, RemoteEngine]:
    """Engines by name, from `{name: {kind: openai, base_url: ..., ...}}`, in that order.

    `secret` as in RemoteEngine. Raises ConfigError that names engine and key.
    """
    if not isinstance(config, Mapping):
        raise ConfigError("engines must map names to settings")
    return {str(name): engine_from_config(str(name), values, secret=secret) for name, values in config.items()}


def engine_from_config(name: str, values: Any, *, secret: bytes | None = None) -> RemoteEngine:
    try:
        config = _ADAPTER.validate_python(values)
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"the engine {name} is not configured rightly: {said}") from error
    breaker = CircuitBreaker(name, num_failures=config.breaker.num_failures, open_s=config.breaker.open_s)
    options: dict[str, Any] = {
        "model": config.model,
        "api_key_env": config.api_key_env,
        "headers": config.headers,
        "timeouts": Timeouts(**config.timeouts.model_dump()),
        "retries": Retries(**config.retries.model_dump()),
        "breaker": breaker,
        "prompt_caching": config.prompt_caching,
        "long_lived_prefixes": config.long_lived_prefixes,
        "secret": secret,
    }
    match config:
        case OpenAIConfig():
            own: Provider = "openai" if config.base_url == OPENAI_URL else "generic"
            provider = config.provider or own
            return OpenAIEngine(name, config.base_url, provider=provider, stream_usage=config.stream_usage, **options)
        case AnthropicConfig():
            return AnthropicEngine(name, config.base_url, default_max_tokens=config.default_max_tokens, **options)
