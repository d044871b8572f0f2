"""A raised epoch, from the key to the entry: what was kept before is never met again, what is kept after is."""

from __future__ import annotations

import pytest

from cachestack.access import KeyStore, Principal
from cachestack.engines.functions import FunctionEngine
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Message, Request
from cachestack.stack import CacheStack
from cachestack.stores.disk import DiskStore
from cachestack.stores.memory import MemoryStore


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_no_entry_from_before_a_raise_is_served_after_it(tmp_path, store: KeyStore, kind):
    stack = CacheStack(
        engines={},
        store=MemoryStore() if kind == "memory" else DiskStore(tmp_path / "entries"),
        index=None,
        encoder=None,
        prefix=PrefixLayer(BlockPool(max_bytes=1024), secret=b"test"),
    )
    calls: list[str] = []

    def ask(principal: Principal) -> str:
        def answer() -> str:
            calls.append("call")
            return f"answer {len(calls)}"

        request = principal.bind(Request((Message("user", "What may I see?"),), model="m"))
        return stack.respond(request, FunctionEngine("f", "m", answer)).text

    def who(key: str, user: str) -> Principal:
        record = next(r for r in store.records() if r.key_id == key.split("_")[1])
        assert record.user == user
        return store.principal(record)

    ana, bob = store.create("acme", user="ana")[0], store.create("acme", user="bob")[0]
    assert ask(who(ana, "ana")) == ask(who(bob, "bob")) == "answer 1"
    store.raise_epoch("acme", user="ana")
    assert ask(who(bob, "bob")) == "answer 1"
    assert ask(who(ana, "ana")) == "answer 2"
    assert ask(who(ana, "ana")) == "answer 2", "what is kept since is served"
    store.raise_epoch("acme")
    assert ask(who(bob, "bob")) == ask(who(ana, "ana")) == "answer 3"
    stack.close()
