"""Wrapped clients over a stack that matches by the real encoder, and the scripted provider behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.index import FaissIndex
from cachestack.stack import CacheStack
from cachestack.stats import Stats
from cachestack.stores.disk import DiskStore
from tests.upstream.server import Upstream


@pytest.fixture(scope="session")
def encoder(encoder_path: Path) -> SentenceEncoder:
    return SentenceEncoder(str(encoder_path))


@pytest.fixture
def make_stack(tmp_path: Path, encoder: SentenceEncoder) -> Iterator[Callable[..., CacheStack]]:
    made: list[CacheStack] = []

    def make(policies: str = "") -> CacheStack:
        store = DiskStore(tmp_path / "entries")
        stack = CacheStack(
            engines={},
            store=store,
            index=FaissIndex(store),
            encoder=encoder,
            prefix=PrefixLayer(BlockPool(max_bytes=1024 * 1024), secret=b"test"),
            policies=PolicySet.parse(policies, "test policy"),
            stats=Stats(),
        )
        made.append(stack)
        return stack

    yield make
    for stack in made:
        stack.close()


@pytest.fixture
def stack(make_stack: Callable[..., CacheStack]) -> CacheStack:
    return make_stack()


@pytest.fixture
def openai(upstream: Upstream) -> Iterator[OpenAI]:
    with OpenAI(base_url=upstream.base_url, api_key="key", max_retries=0) as client:
        yield client


@pytest.fixture
def async_openai(upstream: Upstream) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=upstream.base_url, api_key="key", max_retries=0)


@pytest.fixture
def anthropic(upstream: Upstream) -> Iterator[Anthropic]:
    with Anthropic(base_url=upstream.root_url, api_key="key", max_retries=0) as client:
        yield client


@pytest.fixture
def async_anthropic(upstream: Upstream) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=upstream.root_url, api_key="key", max_retries=0)
