"""From headers to who asks: nothing but the credential says which tenant it is."""

from __future__ import annotations

import hashlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import jwt
import pytest
from hypothesis import HealthCheck, given, settings
from starlette.datastructures import Headers

from cachestack.access import AccessSettings, JwtSettings, KeyStore, OpenAuthenticator, Principal, open_access
from cachestack.access.key_store import FRESH_S
from cachestack.access.principal import MAX_CLAIMED
from cachestack.errors import AccessDenied, StoreError
from cachestack.requests import Message, Request

SECRET = "s" * 32


@pytest.fixture
def access(tmp_path, store, clock, ticks):
    (tmp_path / "secret").write_text(SECRET)
    tokens = JwtSettings(issuer="i", audience="a", secret_file=tmp_path / "secret")
    return open_access(AccessSettings(jwt=tokens), tmp_path, clock=clock, ticks=ticks)


@pytest.fixture
def keys_only(tmp_path, store, clock, ticks):
    return open_access(AccessSettings(), tmp_path, clock=clock, ticks=ticks)


def token(clock, **claims) -> str:
    return jwt.encode({"iss": "i", "aud": "a", "exp": int(clock()) + 60, **claims}, SECRET, "HS256")


def bearer(credential: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"}


def test_every_way_to_send_a_key(access, store, ticks):
    key, record = store.create("acme", user="ana", role="clerk")
    ticks.now_s += FRESH_S
    expected = Principal("acme", "ana", "clerk", 0, "client", record.key_id)
    for headers in (
        bearer(key),
        {"authorization": f"bearer   {key} "},
        {"x-api-key": key},
        {"X-API-Key": key},
        {"x-api-key": key, "authorization": f"Bearer {key}"},
    ):
        assert access.authenticate(headers) == expected


def test_two_different_credentials_are_refused_whichever_would_hold(access, store, clock, ticks):
    mine, theirs, signed = store.create("acme")[0], store.create("rival")[0], token(clock, tenant="rival")
    ticks.now_s += FRESH_S
    for one, other in itertools.permutations([mine, theirs, signed, "nonsense"], 2):
        with pytest.raises(AccessDenied, match="different credentials") as caught:
            access.authenticate({**bearer(one), "x-api-key": other})
        assert caught.value.status == 401


def test_headers_that_come_twice(access, store, ticks):
    """As the gateway's server gives them: one header, several values."""
    mine, theirs = (store.create(tenant)[0].encode() for tenant in ("acme", "rival"))
    ticks.now_s += FRESH_S
    once = (b"authorization", b"Bearer " + mine)
    assert access.authenticate(Headers(raw=[once, once])).tenant == "acme"
    for other in ((b"authorization", b"Bearer " + theirs), (b"x-api-key", theirs), (b"x-api-key", b"x")):
        for raw in ([once, other], [other, once], [once, once, other]):
            with pytest.raises(AccessDenied, match="different credentials"):
                access.authenticate(Headers(raw=raw))


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({}, "no credentials: send an API key"),
        ({"x-api-key": ""}, "no credentials"),
        ({"authorization": "Bearer"}, "no credentials"),
        ({"authorization": "Basic YTpi"}, "must be `Bearer`"),
        ({"authorization": "Bearer a b"}, "not valid"),
        ({"x-api-key": "ключ"}, "not valid"),
        ({"x-api-key": "a" * 100_000}, "not valid"),
        ({"x-api-key": "sk-somebody-elses"}, "not valid"),
    ],
)
def test_what_holds_nothing(keys_only, store, ticks, headers, says):
    store.create("acme")
    ticks.now_s += FRESH_S
    with pytest.raises(AccessDenied, match=says) as caught:
        keys_only.authenticate(headers)
    assert caught.value.status == 401


def test_nothing_tells_whether_a_key_exists(keys_only, store, clock, ticks):
    """An unknown id, a wrong secret, a revoked and an expired key: one answer, and as much work for each."""
    known, _ = store.create("acme")
    revoked, _ = store.create("acme")
    expired, _ = store.create("acme", expires_in_s=1)
    store.revoke(revoked)
    clock.now_s += 2
    ticks.now_s += FRESH_S
    answers, hashed = set(), []
    real = hashlib.sha256

    def counted(data: bytes = b""):
        hashed[-1] += 1
        return real(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cachestack.access.api_key.hashlib.sha256", counted)
        for key in (known[:-43] + "a" * 43, f"csk_AAAAAAAAAAAA_{'a' * 43}", revoked, expired, "csk_AAAA_b"):
            hashed.append(0)
            with pytest.raises(AccessDenied) as caught:
                keys_only.authenticate(bearer(key))
            answers.add((str(caught.value), caught.value.status))
    assert len(answers) == 1
    assert hashed == [1, 1, 1, 1, 0]


def test_an_admin_key_is_no_client_key_and_the_other_way_round(access, store, clock, ticks):
    client, _ = store.create("acme")
    admin, _ = store.create("acme", kind="admin")
    ticks.now_s += FRESH_S
    assert access.authenticate(bearer(admin), "admin").kind == "admin"
    for headers, kind in (
        (bearer(admin), "client"),
        (bearer(client), "admin"),
        (bearer(token(clock, tenant="acme", kind="admin", admin=True)), "admin"),
    ):
        with pytest.raises(AccessDenied) as caught:
            access.authenticate(headers, kind)
        assert caught.value.status == 403


def test_a_token_never_passes_for_a_key(access, keys_only, store, clock, ticks):
    store.create("acme")
    ticks.now_s += FRESH_S
    assert access.authenticate(bearer(token(clock, tenant="acme"))).key_id is None
    with pytest.raises(AccessDenied, match="API key is not valid"):
        keys_only.authenticate(bearer(token(clock, tenant="acme")))


def test_epochs_of_tokens_and_of_keys(access, store, clock, ticks):
    """A raise moves whoever it concerns to where nobody was before, however they prove who they are."""
    key, _ = store.create("acme", user="ana")

    def epochs() -> list[int]:
        ticks.now_s += FRESH_S
        signed = [token(clock, tenant="acme", sub="ana", epoch=epoch) for epoch in (0, 5, MAX_CLAIMED - 1)]
        return [access.authenticate(bearer(credential)).epoch for credential in (key, *signed)]

    before = epochs()
    assert before == [0, 0, 5, MAX_CLAIMED - 1]
    store.raise_epoch("acme", user="ana")
    after = epochs()
    store.raise_epoch("acme")
    later = epochs()
    assert min(after) > max(before)
    assert min(later) > max(after)
    assert max(later) < 2**63


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1, max_size=8)
tenants = st.sampled_from(["acme", "rival", "default", "ACME", "acme ", "аcme"])
header_names = st.sampled_from(["x-tenant", "tenant", "X-User", "x-forwarded-user", "x-role", "cookie", "x-api-tenant"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    own=tenants,
    other=tenants,
    user=st.none() | names,
    headers=st.dictionaries(header_names, names),
    claims=st.dictionaries(st.sampled_from(["tenant_id", "org", "Tenant", "tenants", "azp", "act"]), names),
    way=st.sampled_from(["bearer", "x-api-key"]),
    signed=st.booleans(),
    raised=st.integers(0, 2),
)
def test_no_combination_gives_another_tenant(
    tmp_path_factory, clock, own, other, user, headers, claims, way, signed, raised
):
    """Whatever headers, claims and bodies say beside the credential."""
    home = tmp_path_factory.mktemp("home")
    (home / "secret").write_text(SECRET)
    store = KeyStore(home, clock=clock)
    key = store.create(own, user=user)[0]
    store.create(other)
    for _ in range(raised):
        store.raise_epoch(own)
    tokens = JwtSettings(issuer="i", audience="a", secret_file=home / "secret")
    access = open_access(AccessSettings(jwt=tokens), home, clock=clock)
    credential = token(clock, tenant=own, **({"sub": user} if user else {}), **claims) if signed else key
    headers = headers | (bearer(credential) if way == "bearer" else {"x-api-key": credential})
    principal = access.authenticate(headers)
    assert (principal.tenant, principal.user, principal.kind) == (own, user, "client")
    body = {"tenant": other, "user": "somebody", "metadata": {"tenant": other}}
    request = Request(
        (Message("user", "hello"),), tenant=other, user="somebody", role="boss", epoch=0, extra=body, body=body
    )
    bound = principal.bind(request)
    assert (bound.tenant, bound.user, bound.role) == (own, user, None)
    assert (bound.epoch > 0) == (raised > 0)


def test_open_until_the_first_key_and_never_again(keys_only, store, ticks):
    assert keys_only.is_open
    assert keys_only.authenticate({"authorization": "Bearer sk-anything"}) == Principal("default")
    with pytest.raises(AccessDenied, match="keys create --admin"):
        keys_only.authenticate({}, "admin")
    key, _ = store.create("acme")
    ticks.now_s += FRESH_S
    with pytest.raises(AccessDenied, match="no credentials"):
        keys_only.authenticate({})
    assert keys_only.authenticate(bearer(key)).tenant == "acme"
    store.path.unlink()
    ticks.now_s += FRESH_S
    assert not keys_only.is_open
    with pytest.raises(AccessDenied):
        keys_only.authenticate({})


def test_open_means_one_tenant():
    assert OpenAuthenticator("home").authenticate({"x-tenant": "acme"}) == Principal("home")
    assert OpenAuthenticator(is_admin_open=True).authenticate({}, "admin").kind == "admin"


def test_tokens_alone_are_never_open(access):
    assert not access.is_open
    with pytest.raises(AccessDenied, match="no credentials"):
        access.authenticate({})


def test_a_damaged_file_is_found_at_the_start(tmp_path, store):
    store.create("acme")
    store.path.write_bytes(b"")
    with pytest.raises(StoreError, match="damaged"):
        open_access(AccessSettings(), tmp_path)


def test_a_file_that_becomes_damaged_lets_nobody_in(keys_only, store, ticks):
    key, _ = store.create("acme")
    ticks.now_s += FRESH_S
    assert keys_only.authenticate(bearer(key)).tenant == "acme"
    store.path.write_bytes(b"damaged")
    ticks.now_s += FRESH_S
    for headers in (bearer(key), {}):
        with pytest.raises((StoreError, AccessDenied)):
            keys_only.authenticate(headers)


def test_threads_that_ask_while_a_key_is_revoked(tmp_path, store):
    """Once `revoke` has returned, a store that looks anew refuses; in between there are only yes and no."""
    key, _ = store.create("acme")
    access = open_access(AccessSettings(), tmp_path)
    barrier = threading.Barrier(5)

    def ask(number: int) -> set[str]:
        barrier.wait()
        if number == 0:
            store.revoke(key)
        seen = set()
        for _ in range(300):
            try:
                seen.add(access.authenticate(bearer(key)).tenant)
            except AccessDenied:
                seen.add("refused")
        return seen

    with ThreadPoolExecutor(5) as pool:
        seen = set().union(*pool.map(ask, range(5)))
    assert seen <= {"acme", "refused"}
    access._keys._look_again_at_s = 0.0
    with pytest.raises(AccessDenied):
        access.authenticate(bearer(key))
