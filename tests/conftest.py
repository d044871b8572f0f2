"""What all tests share: the embedded models, and a state folder that is not the user's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cachestack.folders import HOME_VARIABLE, models_folder
from cachestack.models.catalogue import ALL_MINILM_L6_V2, SMOLLM2_135M_INSTRUCT, KnownModel
from cachestack.models.shelf import ModelShelf, ModelState

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine
    from tests.redis_server import RedisServer
    from tests.upstream.server import Upstream

# Before anything imports Hugging Face's libraries, which read it once. Sub-processes inherit it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A shell starts what runs in its background with Ctrl-C ignored, and sub-processes would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's state folder, not even one that forgets to say where its own is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME_VARIABLE, str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """The models folder, as `CACHESTACK_MODELS` or the platform says."""
    return models_folder()


@pytest.fixture(scope="session")
def llm_path(models_dir: Path) -> Path:
    """The embedded language model, ready to load."""
    return _ready(models_dir, SMOLLM2_135M_INSTRUCT)


@pytest.fixture(scope="session")
def encoder_path(models_dir: Path) -> Path:
    """The embedded encoder, ready to load."""
    return _ready(models_dir, ALL_MINILM_L6_V2)


@pytest.fixture(scope="session")
def local_engine(llm_path: Path) -> TransformersEngine:
    """The embedded language model, opened once for all tests. It keeps nothing between requests."""
    from cachestack.engines.transformers.engine import TransformersEngine

    return TransformersEngine(str(llm_path), name="local")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A provider's server that does what the test's script says."""
    from tests.upstream.server import Upstream

    with Upstream() as server:
        yield server


def _ready(models_dir: Path, model: KnownModel) -> Path:
    shelf = ModelShelf(models_dir)
    state = shelf.state(model)
    if state is not ModelState.READY:
        reason = f"{model.name} is {state} in {models_dir}: run `make models`, or set CACHESTACK_MODELS to where it is"
        if os.environ.get("CACHESTACK_REQUIRE_MODELS"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return shelf.path(model)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for all tests; each store on it has keys of its own."""
    from tests.redis_server import running

    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server
