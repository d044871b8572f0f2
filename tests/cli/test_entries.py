"""`cachestack entries`: list, show, remove, export, import, on real stores."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import numpy as np
import pytest

from cachestack.cli.app import main
from cachestack.entries import Entry, Selector
from cachestack.keys import Partition, contract_of, exact_key
from cachestack.requests import Message, Request
from cachestack.semantic.known_encoders import KnownEncoders
from cachestack.stack import CacheStack
from cachestack.stores.disk import DiskStore

FINGERPRINT = "e" * 64
CANARIES = np.eye(8, 4, dtype=np.float32) + np.eye(8, 4, k=-4, dtype=np.float32)


def make_entry(question: str, *, tenant: str = "acme", entry_id: str = "", age_s: float = 10.0, **fields) -> Entry:
    partition = fields.pop("partition", Partition(tenant))
    request = Request((Message("user", question),), tenant=tenant)
    contract = contract_of(request, "m")
    now_s = time.time()
    values = {
        "entry_id": entry_id or f"id-{question}",
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
    }
    return Entry(**(values | fields))


FULL = {
    "principal": "ana",
    "version": "v2",
    "tags": ("faq", "été"),
    "vector": np.array([1, 0, 0, 0], dtype="<f4").tobytes(),
    "encoder": FINGERPRINT,
    "states": b"\x00\xff states",
    "language": "fr",
    "engine_s": 1.5,
    "part_versions": ("1", "2"),
}


class Home:
    """A state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, *entries: Entry) -> None:
        store = DiskStore(self.folder / "entries")
        for entry in entries:
            assert store.put(entry)
        store.close()

    def entries(self) -> list[Entry]:
        store = DiskStore(self.folder / "entries")
        found = sorted(store.select(Selector()), key=lambda e: e.entry_id)
        store.close()
        return found

    @property
    def known(self) -> KnownEncoders:
        return KnownEncoders(self.folder / "encoders")


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path / "one"))
    return Home(tmp_path / "one")


@pytest.fixture
def other(tmp_path) -> Home:
    return Home(tmp_path / "two")


def run(*arguments: str, home: Home | None = None) -> int:
    with pytest.MonkeyPatch.context() as patch:
        if home is not None:
            patch.setenv("CACHESTACK_HOME", str(home.folder))
        return main(["entries", *map(str, arguments)])


def document(capsys):
    return json.loads(capsys.readouterr().out)


def test_list_shows_the_newest_first_and_filters(home, capsys):
    home.put(make_entry("one", age_s=30), make_entry("two", age_s=20, tags=("t",)), make_entry("far", tenant="b"))
    assert run("list", "--json") == 0
    listed = document(capsys)
    assert [e["entry_id"] for e in listed["entries"]] == ["id-far", "id-two", "id-one"]
    assert listed["num_entries"] == 3
    assert "vector" not in listed["entries"][0]
    assert run("list", "--tenant", "acme", "--limit", "1", "--json") == 0
    assert [e["entry_id"] for e in document(capsys)["entries"]] == ["id-two"]
    assert run("list", "--tag", "t", "--json") == 0
    assert [e["entry_id"] for e in document(capsys)["entries"]] == ["id-two"]
    assert run("list", "--limit", "2") == 0
    out = capsys.readouterr().out
    assert "id-far" in out
    assert "2 of 3" in out


def test_list_of_nothing_and_of_nobody(home, capsys):
    assert run("list") == 0
    assert "no entries in" in capsys.readouterr().out
    assert not home.folder.exists(), "looking creates nothing"
    home.put(make_entry("one"))
    assert run("list", "--tenant", "nobody") == 2
    assert "tenants there: acme" in capsys.readouterr().err


def test_text_of_others_does_not_steer_the_terminal(home, capsys):
    home.put(make_entry("[bold]see[/bold] \x1b[2J now", entry_id="x"))
    assert run("list") == 0
    assert run("show", "x") == 0
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out
    assert "[bold]see[/bold]" in out


def test_show_and_remove_one(home, capsys):
    home.put(make_entry("one", **FULL), make_entry("two"))
    assert run("show", "id-one", "--json") == 0
    (shown,) = document(capsys)["entries"]
    assert (shown["answer"], shown["tags"], shown["by_meaning"]) == ("answer to one", ["faq", "été"], True)
    assert run("show", "id-one") == 0
    assert "answer to one" in capsys.readouterr().out
    assert run("show", "id-one", "--tenant", "other") == 2
    assert run("remove", "id-one", "--tenant", "other") == 2
    assert run("remove", "id-one", "--json") == 0
    capsys.readouterr()
    assert [e.entry_id for e in home.entries()] == ["id-two"]
    assert run("remove", "id-one") == 2
    assert "there is no entry 'id-one'" in capsys.readouterr().err


def test_what_is_exported_comes_back_whole(home, other, tmp_path, capsys):
    home.known.meet(FINGERPRINT, CANARIES)
    kept = [
        make_entry("a", **FULL),
        make_entry("b", tenant="b", partition=Partition("b", user="u", role="r", epoch=4)),
        make_entry("c \ud800 half", finish_reason="length"),
        make_entry("  d  "),
    ]
    home.put(*kept)
    file = tmp_path / "all.jsonl"
    assert run("export", file, "--json") == 0
    assert document(capsys) == {"file": str(file), "exported": 4}
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert run("import", file, "--json", home=other) == 0
    assert document(capsys) == {"num_entries": 4, "imported": 4, "exact_only": 0, "skipped": {}}
    assert other.entries() == sorted(kept, key=lambda e: e.entry_id)
    assert os.listdir(tmp_path / "two" / "encoders") == [f"{FINGERPRINT}.npz"]


def test_export_chooses_and_does_not_overwrite(home, tmp_path, capsys):
    home.put(make_entry("a", tags=("t",)), make_entry("b"), make_entry("c", tenant="b", tags=("t",)))
    file = tmp_path / "some.jsonl"
    assert run("export", file, "--tenant", "acme", "--tag", "t") == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line.get("entry_id") for line in lines] == [None, "id-a", None]
    before = file.read_text()
    assert run("export", file) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == before
    assert run("export", file, "--force") == 0
    assert len(file.read_text().splitlines()) == 5
    assert run("export", tmp_path / "no" / "folder.jsonl") == 2
    assert run("export", tmp_path / "x.jsonl", "--tenant", "nobody") == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "some.jsonl"], "nothing half-written is left"


def test_a_newer_entry_stays(home, other, tmp_path, capsys):
    home.put(make_entry("a", entry_id="old", age_s=100), make_entry("b", entry_id="new", age_s=1))
    here = (make_entry("a", entry_id="mine", age_s=50), make_entry("b", entry_id="mine-too", age_s=50))
    other.put(*here)
    file = tmp_path / "f.jsonl"
    run("export", file)
    capsys.readouterr()
    assert run("import", file, "--json", home=other) == 0
    assert document(capsys)["skipped"] == {"newer": 1}
    assert [e.entry_id for e in other.entries()] == ["mine", "new"]
    assert run("import", file, "--json", home=other) == 0
    assert document(capsys)["skipped"] == {"newer": 2}, "twice is as once"


def test_expired_too_large_and_invalidated_entries_are_left_out(home, other, tmp_path, capsys):
    now_s = time.time()
    home.put(
        make_entry("expired", expires_at_s=now_s - 2, stale_until_s=now_s - 1),
        make_entry("large", tenant="small", answer="x" * 9000),
        make_entry("revoked", tenant="gone"),
        make_entry("fine"),
    )
    file = tmp_path / "f.jsonl"
    run("export", file)
    other.put(make_entry("something", tenant="gone"))
    store = DiskStore(other.folder / "entries")
    store.invalidate(Selector(tenant="gone"))
    store.close()
    policies = tmp_path / "p.yaml"
    policies.write_text("tenants: {small: {retention: {max_bytes: 4000}}}")
    capsys.readouterr()
    assert run("import", file, "--policies", policies, home=other) == 0
    out = capsys.readouterr().out
    assert "1 of 4 imported" in out
    for why in ("expired", "too_large", "invalidated"):
        assert f"1 left out: {why}" in out
    assert [e.question for e in other.entries()] == ["fine"]


def test_all_for_one_tenant(home, other, tmp_path):
    home.put(make_entry("  a ", **FULL), make_entry("b", tenant="b", partition=Partition("b", user="u")))
    file = tmp_path / "f.jsonl"
    run("export", file)
    assert run("import", file, "--tenant", "new", home=other) == 0
    found = other.entries()
    assert {e.partition for e in found} == {Partition("new"), Partition("new", user="u")}
    contract = contract_of(Request((Message("user", "  a "),)), "m")
    store = DiskStore(other.folder / "entries")
    assert store.find_exact(Partition("new"), exact_key(Partition("new"), contract, "  a ")) is not None
    store.close()


def test_an_unnamed_tenant_is_refused_where_the_policy_refuses_it(home, other, tmp_path, capsys):
    home.put(make_entry("a"))
    file, policies = tmp_path / "f.jsonl", tmp_path / "p.yaml"
    run("export", file)
    policies.write_text("unknown_tenants: refuse\ntenants: {other: {}}")
    assert run("import", file, "--policies", policies, home=other) == 2
    assert "has no policy" in capsys.readouterr().err
    assert other.entries() == []
    assert run("import", file, "--policies", policies, "--tenant", "other", home=other) == 0


@pytest.mark.parametrize("there", ["same", "another", "unknown"])
def test_vectors_are_kept_only_where_they_may_be_compared(home, other, tmp_path, capsys, there):
    if there != "unknown":
        home.known.meet(FINGERPRINT, CANARIES)
    if there == "another":
        other.known.meet(FINGERPRINT, np.ascontiguousarray(CANARIES[::-1]))
    home.put(make_entry("a", **FULL))
    file = tmp_path / "f.jsonl"
    run("export", file)
    capsys.readouterr()
    assert run("import", file, "--json", home=other) == 0
    kept = there == "same"
    assert document(capsys)["exact_only"] == (not kept)
    (entry,) = other.entries()
    assert (entry.vector, entry.encoder, entry.states) == (
        (FULL["vector"], FINGERPRINT, FULL["states"]) if kept else (None, None, b"")
    )
    assert entry.answer == "answer to a"


HEADER = {"format": "cachestack-entries", "v": 1, "entry_v": 1, "key_v": "2"}


def damaged(change):
    """What `change` makes of the lines of a sound export."""

    def damage(lines):
        return change([*lines])

    return damage


BAD = {
    "is cut off": damaged(lambda lines: lines[:-1]),
    "is cut off: it has 1": damaged(lambda lines: [lines[0], lines[1], lines[3]]),
    "line 4: something follows": damaged(lambda lines: [*lines[:2], lines[3], lines[2]]),
    "is not a file that": damaged(lambda lines: lines[1:]),
    "another version": damaged(lambda lines: [json.dumps(HEADER | {"v": 2}), *lines[1:]]),
    "key_v 1": damaged(lambda lines: [json.dumps(HEADER | {"key_v": "1"}), *lines[1:]]),
    "line 2 is not JSON": damaged(lambda lines: [lines[0], lines[1][:-9], *lines[2:]]),
    "line 2 is no JSON object": damaged(lambda lines: [lines[0], "[]", *lines[2:]]),
    "its key is not that of its question": damaged(
        lambda lines: [lines[0], edited(lines[1], question="b?"), *lines[2:]]
    ),
    "its key is not that": damaged(
        lambda lines: [lines[0], edited(lines[1], partition={"tenant": "x", "user": None, "role": None}), *lines[2:]]
    ),
    "unknown fields": damaged(lambda lines: [lines[0], edited(lines[1], more=1), *lines[2:]]),
    "created_at_s": damaged(lambda lines: [lines[0], edited(lines[1], created_at_s="soon"), *lines[2:]]),
    "must be finite": damaged(lambda lines: [lines[0], edited(lines[1], expires_at_s=float("inf")), *lines[2:]]),
    "is no entry": damaged(lambda lines: [lines[0], edited(lines[1], vector="%%%"), *lines[2:]]),
    "a vector needs an encoder": damaged(lambda lines: [lines[0], edited(lines[1], vector="AAAAAA=="), *lines[2:]]),
    "finish_reason": damaged(lambda lines: [lines[0], edited(lines[1], finish_reason="bored"), *lines[2:]]),
    "of encoders": damaged(lambda lines: [*lines[:-1], edited(lines[-1], encoders={"e": {"shape": [2, 2]}})]),
}


def edited(line: str, **values) -> str:
    return json.dumps(json.loads(line) | values)


@pytest.mark.parametrize("message", BAD)
def test_a_damaged_file_is_refused_whole(home, other, tmp_path, capsys, message):
    home.put(make_entry("a"), make_entry("b"))
    file = tmp_path / "f.jsonl"
    run("export", file)
    file.write_text("\n".join(BAD[message](file.read_text().splitlines())) + "\n")
    assert run("import", file, home=other) == 2
    assert message in capsys.readouterr().err
    assert other.entries() == []


def test_files_that_are_none(other, tmp_path, capsys):
    assert run("import", tmp_path / "no.jsonl", home=other) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run("import", tmp_path, home=other) == 2
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    assert run("import", tmp_path / "x", home=other) == 2
    assert "UTF-8" in capsys.readouterr().err
    (tmp_path / "x").write_bytes(b"")
    assert run("import", tmp_path / "x", home=other) == 2


def test_an_imported_entry_serves_by_meaning(tmp_path, encoder_path, capsys):
    one, two = tmp_path / "one", tmp_path / "two"

    def respond(home: Path, prompt: str, answer: str):
        with CacheStack.without_engine(home=home) as stack:
            return stack.wrap(tenant="acme", model="m", name="ask")(lambda text: answer).respond(prompt)

    respond(one, "How do I reset my password?", "Click on the link.")
    respond(two, "Where are you?", "Here.")
    file = tmp_path / "f.jsonl"
    assert run("export", file, home=Home(one)) == 0
    capsys.readouterr()
    assert run("import", file, "--json", home=Home(two)) == 0
    assert document(capsys)["imported"] == 1
    response = respond(two, "How can I reset my password?", "another answer")
    assert (response.text, response.trace.served_from) == ("Click on the link.", "semantic")
