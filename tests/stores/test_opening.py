"""A store by reference, in code, in a file, in the environment; and the index that goes with it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.errors import ConfigError, StoreError
from cachestack.gateway.config import load_config
from cachestack.semantic.index import FaissIndex
from cachestack.semantic.index_opening import open_index
from cachestack.semantic.redis_index import RedisIndex
from cachestack.stack import CacheStack
from cachestack.stores.disk import DiskStore
from cachestack.stores.opening import DiskRef, RedisRef, open_store, parse_ref
from cachestack.stores.tiered import TieredStore
from tests.redis_server import running
from tests.upkeep.conftest import ENCODER, make_entry

HOME = Path("/home-of-tests")


def _answer(prompt: str) -> str:
    return f"answer to {prompt}"


def test_the_default_is_a_folder_in_the_home(tmp_path):
    assert parse_ref(None, HOME, {}) == DiskRef(HOME / "entries")
    assert parse_ref("disk:", HOME, {"CACHESTACK_STORE": "redis://h"}) == DiskRef(HOME / "entries")
    assert parse_ref(None, HOME, {"CACHESTACK_STORE": ""}) == DiskRef(HOME / "entries")
    assert parse_ref(f"disk:{tmp_path}", HOME, {}) == DiskRef(tmp_path)


def test_the_environment_names_it():
    environ = {"CACHESTACK_STORE": "redis://localhost/1"}
    assert parse_ref(None, HOME, environ) == RedisRef("redis://localhost/1")
    assert parse_ref("redis://localhost/2", HOME, environ) == RedisRef("redis://localhost/2")


def test_own_options_are_taken_and_the_others_passed_on():
    ref = "rediss://u:p%40ss@host:6380/3?prefix=mine:&slots=4&deadline_ms=250&memory_bytes=64M&ssl_ca_certs=/ca.pem"
    assert parse_ref(ref, HOME, {}) == RedisRef(
        "rediss://u:p%40ss@host:6380/3?ssl_ca_certs=%2Fca.pem", "mine:", 4, 0.25, 64 * 2**20
    )
    assert parse_ref("unix:///run/redis.sock?db=2&slots=2", HOME, {}).url == "unix:///run/redis.sock?db=2"


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("redis://host?slot=3", "unknown option 'slot'; allowed: prefix, slots"),
        ("redis://host?slots=0", "slots must be a whole number from 1 to 256"),
        ("redis://host?slots=two", "not 'two'"),
        ("redis://host?deadline_ms=-1", "deadline_ms must be"),
        ("redis://host?memory_bytes=1T", "memory_bytes must be"),
        ("redis://host?prefix=", "prefix must be"),
        ("redis://host?prefix={a}", "prefix must be"),
        ("redis:///0", "needs a host"),
        ("unix://", "needs the path"),
        ("redis://host:port", "no address"),
        ("memcached://host", "is no store; give disk:PATH, redis://"),
        ("/a/folder", "is no store"),
        ("redis:host", "is no store"),
    ],
)
def test_what_is_no_reference_is_refused(ref, said):
    with pytest.raises(ConfigError) as refused:
        parse_ref(None, HOME, {"CACHESTACK_STORE": ref})
    assert said in str(refused.value)
    assert str(refused.value).startswith("CACHESTACK_STORE: ")


SECRET = "hid/de?n@pass"


@pytest.mark.parametrize(
    "ref",
    [
        f"redis://user:{SECRET}@host",
        f"redis://user:{SECRET}@host:port",
        f"redis://user:{SECRET}@host?slot=3",
        f"redis://:{SECRET}@host?slots=x",
        f"other://user:{SECRET}@host",
        f"redis://host?ssl_keyfile_password={SECRET}&slots=x",
        "rediss://user:hid%2Fde@host?db=one",
    ],
)
def test_a_password_is_never_shown(ref, monkeypatch, capsys, tmp_path):
    shown = ""
    try:
        found = parse_ref(ref, HOME, {})
        shown = found.shown + repr(found)
        open_store(ref, HOME)
    except ConfigError as error:
        shown += str(error)
    assert shown
    monkeypatch.setenv("CACHESTACK_STORE", ref)
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    for command in (["stats"], ["stats", "--json"], ["entries", "list"], ["doctor"]):
        main(command)
    said = capsys.readouterr()
    for text in (shown, said.out, said.err):
        assert "hid" not in text
        assert "n@pass" not in text


def test_the_shown_form_names_user_host_and_database():
    assert parse_ref("redis://ana:pw@host:6379/1?slots=2", HOME, {}).shown == "redis://ana:***@host:6379/1"
    assert parse_ref("unix:///run/x.sock", HOME, {}).shown == "unix:///run/x.sock"


def test_nothing_is_created_or_connected_to(tmp_path):
    store = open_store(None, tmp_path / "home")
    assert isinstance(store, DiskStore)
    store.close()
    tiered = open_store("redis://localhost:1/0", tmp_path / "home")
    assert isinstance(tiered, TieredStore)
    tiered.close()
    assert list(tmp_path.iterdir()) == []


def test_stacks_on_one_server_share_their_answers(redis_server, tmp_path):
    ref = f"{redis_server.url}?prefix={redis_server.new_prefix()}"
    hits = []
    for home in ("one", "two"):
        with CacheStack.without_engine(home=tmp_path / home, store=ref, encoder="none") as stack:
            assert (
                stack.wrap(tenant="acme", model="m", version="1")(_answer)("How do I pay?") == "answer to How do I pay?"
            )
            hits.append(dict(stack.stats().by_tenant["acme"].semantic.hits))
    assert hits == [{}, {"exact": 1}]
    assert not (tmp_path / "one" / "entries").exists()


def test_the_gateway_and_the_commands_take_it(redis_server, tmp_path, monkeypatch, capsys):
    ref = f"{redis_server.url}?prefix={redis_server.new_prefix()}"
    file = tmp_path / "gateway.yaml"
    file.write_text(f"store: '{ref}'\n")
    assert load_config(file, {}).store == ref
    assert load_config(file, {"CACHESTACK_STORE": "disk:/x"}).store == "disk:/x"
    monkeypatch.setenv("CACHESTACK_STORE", ref)
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path / "home"))
    store = open_store(None, tmp_path)
    entry = make_entry(tenant="acme")
    store.put(entry)
    assert main(["entries", "list"]) == 0
    assert entry.entry_id in capsys.readouterr().out
    assert main(["stats"]) == 0
    assert f"store {redis_server.url}: ok, 1 entries" in capsys.readouterr().out
    assert main(["invalidate", "--tenant", "acme"]) == 0
    assert "1 removed" in capsys.readouterr().out
    assert store.size().num_entries == 0
    store.close()


def test_stats_of_a_store_that_does_not_answer(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CACHESTACK_STORE", "redis://localhost:1")
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    assert main(["stats"]) == 0
    assert "store redis://localhost:1: Redis does not answer" in capsys.readouterr().out


# the index


def test_the_index_follows_the_store(tmp_path, redis_server):
    disk = open_store(None, tmp_path)
    assert isinstance(open_index(disk, tmp_path), FaissIndex)
    disk.close()
    store = open_store(f"{redis_server.url}?prefix={redis_server.new_prefix()}", tmp_path)
    index, entry = open_index(store, tmp_path), make_entry()
    store.put(entry)
    (found,) = index.search(entry.partition, entry.contract, entry.vector, ENCODER, 1)
    assert found.entry == entry
    assert isinstance(index._chosen, RedisIndex)
    index.close()
    store.close()


def test_a_server_without_vector_sets_is_said_once_and_searched_all_the_same(tmp_path, caplog):
    with running(tmp_path) as server:
        client = server.client()
        client.execute_command(
            "ACL", "SETUSER", "plain", "on", "nopass", "~*", "&*", "+@all", "-vadd", "-vsim", "-vcard"
        )
        store = open_store(server.url.replace("unix://", "unix://plain:x@"), tmp_path)
        index, entry = open_index(store, tmp_path), make_entry()
        assert store.put(entry), "an entry with a vector is kept without a vector set"
        with caplog.at_level(logging.WARNING, "cachestack"):
            for _ in range(2):
                (found,) = index.search(entry.partition, entry.contract, entry.vector, ENCODER, 1)
                assert found.entry == entry
        assert [r.message for r in caplog.records if "no vector sets" in r.message] != []
        assert sum("no vector sets" in r.message for r in caplog.records) == 1
        other = make_entry(vector=entry.vector)
        store.set_vector(entry.partition, entry.entry_id, other.vector, "f" * 64)
        index.close()
        store.close()


def test_a_server_that_is_down_at_the_first_search_is_asked_again(tmp_path):
    socket = tmp_path / "redis.sock"
    store = open_store(f"unix://{socket}", tmp_path)
    store.shared.link._rest_s = 0.0
    index, entry = open_index(store, tmp_path), make_entry()
    with pytest.raises(StoreError):
        index.search(entry.partition, entry.contract, entry.vector, ENCODER, 1)
    with running(tmp_path):
        store.put(entry)
        (found,) = index.search(entry.partition, entry.contract, entry.vector, ENCODER, 1)
        assert found.entry == entry
        index.close()
        store.close()
