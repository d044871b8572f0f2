from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cachestack.entries import Entry, Selector
from cachestack.keys import Partition, contract_of, exact_key
from cachestack.requests import Message, Request
from cachestack.stores.disk import DiskStore
from cachestack.stores.opening import StoreRef, open_redis, parse_ref
from cachestack.stores.redis.store import RedisStore
from cachestack.stores.tenants import folder_name
from cachestack.upkeep.doctor import Examination, examine_all
from cachestack.upkeep.findings import Check, Looked
from tests.redis_server import RedisServer

ENCODER = "e" * 64
_NUMBERS = itertools.count()
MakeEntry = Callable[..., Entry]


def vector_of(number: int, dimension: int = 8) -> bytes:
    vector = np.random.default_rng(number).standard_normal(dimension)
    return (vector / np.linalg.norm(vector)).astype("<f4").tobytes()


def make_entry(question: str | None = None, *, tenant: str = "acme", age_s: float = 10.0, **fields) -> Entry:
    """A whole entry, such as a request makes; keyword arguments replace fields."""
    number = next(_NUMBERS)
    question = f"question {number}" if question is None else question
    partition = fields.pop("partition", Partition(tenant))
    contract = contract_of(Request((Message("user", question),), tenant=tenant), "m")
    now_s = time.time()
    values = {
        "entry_id": f"id-{number}",
        "partition": partition,
        "contract": contract.digest,
        "exact": exact_key(partition, contract, question),
        "question": question,
        "answer": f"answer to {question}",
        "finish_reason": "stop",
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "model": "m",
        "created_at_s": now_s - age_s,
        "expires_at_s": now_s + 3600,
        "stale_until_s": now_s + 7200,
        "vector": vector_of(number),
        "encoder": ENCODER,
    }
    return Entry(**(values | fields))


@dataclass
class Home:
    """A state folder, and where its entries are."""

    folder: Path
    store_ref: str | None = None
    policies: str | None = None

    @property
    def ref(self) -> StoreRef:
        return parse_ref(self.store_ref, self.folder, {})

    def open(self) -> DiskStore:
        return DiskStore(self.folder / "entries")

    def put(self, *entries: Entry) -> None:
        store = self.open()
        for entry in entries:
            assert store.put(entry)
        store.close()

    def entries(self) -> dict[str, Entry]:
        store = self.open()
        try:
            return {entry.entry_id: entry for entry in store.select(Selector())}
        finally:
            store.close()

    def look(self, *, repair: bool = False, checks: Sequence[Check] | None = None) -> Examination:
        looked = Looked(self.folder, self.ref, time.time(), policies=self.policies)
        return examine_all(looked, repair=repair, checks=checks)

    def file_of(self, tenant: str) -> Path:
        return self.folder / "entries" / folder_name(tenant) / "cache.db"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("CACHESTACK_HOME", str(folder))
    return Home(folder)


@pytest.fixture
def redis_home(home: Home, redis_server: RedisServer) -> Home:
    home.store_ref = f"{redis_server.url}?prefix={redis_server.new_prefix()}"
    return home


@pytest.fixture
def shared(redis_home: Home) -> Iterator[RedisStore]:
    store = open_redis(redis_home.ref).shared
    yield store
    store.close()
