"""The only file that chooses concrete classes: from settings to a stack."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cachestack.engines.base import Engine, TokenEngine
from cachestack.errors import UsageError
from cachestack.folders import home_folder, lasting_secret
from cachestack.observing.request_log import REQUESTS_FOLDER, RequestLog
from cachestack.policy_set import PolicySet
from cachestack.policy_watch import PolicyWatch
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.prefix.rows import LogitRows
from cachestack.requests import Message, Request, Sampling
from cachestack.semantic.budget.budgets import Budgets
from cachestack.semantic.budget.keeper import BUDGET_FOLDER
from cachestack.semantic.verifiers.packing import StatesOf
from cachestack.stats import Stats
from cachestack.stores.opening import open_store, open_sums

if TYPE_CHECKING:
    from cachestack.engines.remote.engine import RemoteEngine
    from cachestack.evaluation.replay import LogReplay
    from cachestack.semantic.base import Encoder, Index
    from cachestack.semantic.encoder_change import EncoderChange
    from cachestack.stack import CacheStack
    from cachestack.stores.disk import DiskStore
    from cachestack.stores.tiered import TieredStore

S = TypeVar("S", bound="CacheStack")
DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_ENCODER = "all-minilm-l6-v2"
NO_ENCODER = "none"
ROW_BYTES = 32 * 1024 * 1024
POOL_BYTES = 512 * 1024 * 1024 - ROW_BYTES


def build_local(
    cls: type[S],
    *,
    model: str | None,
    encoder: str | None,
    policies: str | Path | PolicySet | None,
    home: str | Path | None,
    store: str | None = None,
    device: str | None,
    dtype: str | None,
    request_log: bool = False,
    request_log_text: bool = False,
) -> S:
    """A stack with the in-process engine."""
    from cachestack.engines.transformers.engine import TransformersEngine

    engine = TransformersEngine(model or DEFAULT_MODEL, device=device, dtype=dtype)
    stack = _build(cls, {"local": engine}, encoder, policies, home, store=store)
    return _logged(stack, home, wanted=request_log, with_text=request_log_text)


def build_without_engine(
    cls: type[S],
    *,
    encoder: str | None,
    policies: str | Path | PolicySet | None,
    home: str | Path | None,
    store: str | None = None,
    request_log: bool = False,
    request_log_text: bool = False,
) -> S:
    """A stack for wrapped functions."""
    stack = _build(cls, {}, encoder, policies, home, store=store)
    return _logged(stack, home, wanted=request_log, with_text=request_log_text)


def build_on(
    cls: type[S],
    engines: Mapping[str, Engine],
    *,
    encoder: str | None,
    policies: str | Path | PolicySet | None,
    home: str | Path | None,
    store: str | None = None,
    request_log: bool = False,
    request_log_text: bool = False,
) -> S:
    """A stack on engines that were opened elsewhere; the first is used unless a request names another."""
    stack = _build(cls, engines, encoder, policies, home, store=store)
    return _logged(stack, home, wanted=request_log, with_text=request_log_text)


def build_remote(
    cls: type[S],
    base_url: str,
    *,
    kind: str,
    encoder: str | None,
    policies: str | Path | PolicySet | None,
    home: str | Path | None,
    options: Mapping[str, Any],
    store: str | None = None,
) -> S:
    """A stack with one remote engine."""
    from cachestack.engines.remote.anthropic import AnthropicEngine
    from cachestack.engines.remote.openai import OpenAIEngine

    classes: Mapping[str, Callable[..., Engine]] = {"openai": OpenAIEngine, "anthropic": AnthropicEngine}
    if kind not in classes:
        raise UsageError(f"kind must be openai or anthropic, not {kind!r}")
    folder = Path(home) if home is not None else home_folder()
    engine = classes[kind]("remote", base_url, **{"secret": lasting_secret(folder), **options})
    return _build(cls, {"remote": engine}, encoder, policies, home, store=store)


def remote_engines(config: Mapping[str, Any], *, home: str | Path | None = None) -> dict[str, RemoteEngine]:
    """Remote engines by name, from what a configuration file says (see `engines/remote/config.py`).

    Raises ConfigError that names engine and key. Processes with the same `home` send the same salts.
    """
    from cachestack.engines.remote.config import engines_from_config

    folder = Path(home) if home is not None else home_folder()
    return engines_from_config(config, secret=lasting_secret(folder))


def build_demo(
    *, model: str | None, policies: Path, home: Path, clock: Callable[[], float]
) -> tuple[CacheStack, TokenEngine]:
    """A stack with the in-process engine and a clock that can be moved, both models loaded and warm."""
    from cachestack.engines.transformers.engine import TransformersEngine
    from cachestack.stack import CacheStack

    engine = TransformersEngine(model or DEFAULT_MODEL)
    stack = _build(CacheStack, {"local": engine}, None, policies, home, clock)
    stack.performer.embed("warm up")
    request = Request((Message("user", "warm up"),), sampling=Sampling(max_new_tokens=2))
    assert engine.fingerprint, "a loaded model has a fingerprint"
    for _ in engine.stream_tokens(request, engine.prepare(request), (), ()):
        pass
    return stack, engine


def build_replay(encoder: Encoder | None, policies: PolicySet, *, max_pairs: int) -> LogReplay:
    """A replay of one log over a store in memory."""
    from cachestack.evaluation.replay import LogClock, LogReplay, PreparedPerformer
    from cachestack.stores.memory import MemoryStore

    clock = LogClock()
    store = MemoryStore(clock)
    index: Index | None = None
    if encoder is not None:
        from cachestack.semantic.index import FaissIndex

        index = FaissIndex(store)
    return LogReplay(PreparedPerformer(store, index, encoder, clock), policies, clock, max_pairs=max_pairs)


def _build(
    cls: type[S],
    engines: Mapping[str, Engine],
    encoder: str | None,
    policies: str | Path | PolicySet | None,
    home: str | Path | None,
    clock: Callable[[], float] = time.time,
    *,
    store: str | None = None,
) -> S:
    folder = Path(home) if home is not None else home_folder()
    watch = PolicyWatch(policies)
    opened = open_store(store, folder, clock)
    encoder_, index, change = _meaning(encoder or DEFAULT_ENCODER, opened, folder)
    return cls(
        engines=engines,
        store=opened,
        index=index,
        encoder=encoder_,
        prefix=PrefixLayer(BlockPool(max_bytes=POOL_BYTES), secret=secrets.token_bytes(32)),
        rows=LogitRows(ROW_BYTES, secret=secrets.token_bytes(32)),
        policies=watch,
        stats=Stats(open_sums(store, folder)),
        budgets=Budgets(folder / BUDGET_FOLDER, clock),
        clock=clock,
        needs_encoder=encoder is not None,
        change=change,
    )


def _logged(stack: S, home: str | Path | None, *, wanted: bool, with_text: bool) -> S:
    if wanted or with_text:
        folder = Path(home) if home is not None else home_folder()
        stack.observe(RequestLog(folder / REQUESTS_FOLDER, with_text=with_text))
    return stack


def _meaning(
    name: str, store: DiskStore | TieredStore, folder: Path
) -> tuple[Encoder | None, Index | None, EncoderChange | None]:
    if name == NO_ENCODER:
        return None, None, None
    from cachestack.semantic.encoder_change import EncoderChange
    from cachestack.semantic.index_opening import open_index
    from cachestack.semantic.known_encoders import KnownEncoders, RecognisedEncoder
    from cachestack.semantic.opening import lasting_ref, open_encoder

    known = KnownEncoders(folder / "encoders")
    encoder = RecognisedEncoder(open_encoder(name), known, lasting_ref(name))
    change = EncoderChange(store, known, encoder, open_encoder, packer=StatesOf(encoder))
    return encoder, open_index(store, folder), change
