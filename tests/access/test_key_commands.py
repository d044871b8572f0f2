"""`cachestack keys` from the shell."""

from __future__ import annotations

import json

import pytest

from cachestack.access import KeyStore
from cachestack.cli.app import main
from tests.access.parts import parts_of


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    return tmp_path


def said(capsys, *arguments: str) -> dict:
    assert main(["keys", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_keys_life(home, capsys):
    made = said(capsys, "create", "--tenant", "acme", "--user", "ana", "--role", "clerk", "--name", "CI")
    key_id, secret = parts_of(made["key"])
    assert (made["id"], made["tenant"], made["user"], made["role"], made["kind"]) == (
        key_id,
        "acme",
        "ana",
        "clerk",
        "client",
    )
    assert KeyStore(home).find(key_id, secret).tenant == "acme"
    assert said(capsys, "raise-epoch", "--tenant", "acme", "--role", "clerk")["epoch"] == 1
    (listed,) = said(capsys, "list")["keys"]
    assert (listed["id"], listed["state"], listed["epoch"], listed["name"]) == (key_id, "active", 1, "CI")
    assert "key" not in listed
    assert said(capsys, "revoke", key_id)["state"] == "revoked"
    assert KeyStore(home).find(key_id, secret) is None


def test_the_key_alone_is_on_stdout(home, capsys):
    assert main(["keys", "create", "--tenant", "acme", "--expires-in", "90d"]) == 0
    captured = capsys.readouterr()
    assert "not shown again" in captured.err
    assert parts_of(captured.out.strip())[1] not in captured.err
    (record,) = KeyStore(home).records()
    assert record.expires_s - record.created_s == 90 * 86_400


def test_tables_and_an_admin(home, capsys):
    assert main(["keys", "list"]) == 0
    assert "no keys yet" in capsys.readouterr().out
    assert said(capsys, "create", "--admin")["kind"] == "admin"
    assert main(["keys", "list"]) == 0
    assert "admin" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create"], "--tenant NAME, or --admin"),
        (["create", "--tenant", ""], "tenant must be a name"),
        (["create", "--tenant", "a", "--expires-in", "90"], "such as 90d"),
        (["create", "--tenant", "a", "--expires-in", "-1d"], "such as 90d"),
        (["create", "--tenant", "a", "--expires-in", "0d"], "such as 90d"),
        (["revoke", "AAAAAAAAAAAA"], "there is no key AAAAAAAAAAAA"),
        (["revoke", "acme"], "12 letters and digits"),
        (["raise-epoch", "--tenant", "a", "--user", "u", "--role", "r"], "not of both"),
    ],
)
def test_wrong_calls(home, capsys, arguments, says):
    assert main(["keys", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert not (home / "access").exists()
