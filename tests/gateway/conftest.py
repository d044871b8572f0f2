"""One gateway on the embedded models for all tests, and one of its own on a scripted engine for each that asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cachestack.build import build_on
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.policy_set import PolicySet
from cachestack.stack import CacheStack
from tests.gateway.served import ScriptedEngine, Served


@pytest.fixture(scope="session")
def embedded(
    local_engine: TransformersEngine, encoder_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """What `cachestack serve` is without a configuration."""
    home = tmp_path_factory.mktemp("embedded")
    stack = build_on(CacheStack, {"local": local_engine}, encoder=None, policies=None, home=home)
    with Served.on(stack) as served:
        yield served


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def policies() -> PolicySet | None:
    """Overridden where a test has its own."""
    return None


@pytest.fixture
def scripted(engine: ScriptedEngine, tmp_path: Path, policies: PolicySet | None) -> Iterator[Served]:
    """On the scripted engine, matching exactly only."""
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=policies, home=tmp_path)
    with Served.on(stack) as served:
        yield served


@pytest.fixture
def http(scripted: Served) -> Iterator[httpx.Client]:
    with scripted.http() as client:
        yield client
