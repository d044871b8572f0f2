"""JSON Web Tokens: what is signed by the issuer for us is believed, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sys
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from pydantic import ValidationError

from cachestack.access import ClaimNames, JwtSettings, TokenReader
from cachestack.access.jwt_tokens import MAX_REMEMBERED, REMEMBERED_S
from cachestack.errors import AccessDenied, ConfigError, MissingExtra
from cachestack.watched_file import CHECK_EVERY_S

SECRET = "s" * 32
WHO = {"iss": "https://issuer", "aud": "cachestack"}


def public_jwk(key, **more) -> dict:
    kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), **more}


def public_pem(key) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def by_hand(head: dict, payload: dict, secret: bytes) -> str:
    """A token that PyJWT would refuse to make."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    signed = f"{part(json.dumps(head).encode())}.{part(json.dumps(payload).encode())}"
    return f"{signed}.{part(hmac.new(secret, signed.encode(), hashlib.sha256).digest()) if secret else ''}"


@pytest.fixture
def claims(clock):
    return WHO | {"exp": int(clock()) + 600, "tenant": "acme", "sub": "ana"}


@pytest.fixture
def with_secret(tmp_path, clock, ticks):
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")

    def make(**more) -> TokenReader:
        return TokenReader(
            JwtSettings(issuer=WHO["iss"], audience=WHO["aud"], secret_file=path, **more), clock=clock, ticks=ticks
        )

    return make


@pytest.fixture
def jwks(tmp_path, rsa_key, ec_key) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [public_jwk(rsa_key, kid="r"), public_jwk(ec_key, kid="e")]}))
    return path


@pytest.fixture
def with_jwks(jwks, clock, ticks):
    settings = JwtSettings(issuer=WHO["iss"], audience=WHO["aud"], jwks_file=jwks)
    return TokenReader(settings, clock=clock, ticks=ticks)


def sign(claims: dict, key=SECRET, algorithm: str = "HS256", **head) -> str:
    return jwt.encode(claims, key, algorithm, headers=head or None)


def test_a_secret(with_secret, claims):
    read = with_secret().read(sign(claims | {"role": "clerk", "epoch": 7}))
    assert (read.tenant, read.user, read.role, read.epoch) == ("acme", "ana", "clerk", 7)


def test_public_keys(with_jwks, claims, rsa_key, ec_key):
    assert with_jwks.read(sign(claims, rsa_key, "RS256", kid="r")).tenant == "acme"
    assert with_jwks.read(sign(claims, ec_key, "ES256", kid="e")).tenant == "acme"
    assert with_jwks.read(sign(claims, ec_key, "ES256")).tenant == "acme"  # the only one of its algorithm


def test_a_secret_from_the_environment(monkeypatch, clock, claims):
    settings = JwtSettings(issuer=WHO["iss"], audience=WHO["aud"], secret_env="TOKEN_SECRET")
    with pytest.raises(ConfigError, match="TOKEN_SECRET is not set"):
        TokenReader(settings)
    monkeypatch.setenv("TOKEN_SECRET", SECRET)
    assert TokenReader(settings, clock=clock).read(sign(claims)).tenant == "acme"


def test_no_algorithm_but_the_keys_own(with_jwks, with_secret, claims, rsa_key, ec_key):
    """`none`, a public key taken for a secret, another hash, the other kind of key under a known name."""
    pem = public_pem(rsa_key).encode()
    tokens = [
        by_hand({"alg": "none", "typ": "JWT"}, claims, b""),
        by_hand({"alg": "none", "kid": "r"}, claims, b""),
        by_hand({"alg": "None", "kid": "r"}, claims, b""),
        by_hand({"alg": "HS256", "kid": "r"}, claims, pem),
        by_hand({"alg": "HS256", "kid": "r"}, claims, json.dumps(public_jwk(rsa_key)).encode()),
        by_hand({"alg": "HS256"}, claims, pem),
        by_hand({"kid": "r"}, claims, pem),
        by_hand({"alg": ["RS256"], "kid": "r"}, claims, pem),
        sign(claims, rsa_key, "RS512", kid="r"),
        sign(claims, rsa_key, "PS256", kid="r"),
        sign(claims, ec_key, "ES256", kid="r"),
        sign(claims, rsa_key, "RS256", kid="e"),
        sign(claims, rsa_key, "RS256", kid="x"),
        sign(claims, rsa_generated(), "RS256", kid="r"),
        sign(claims, rsa_generated(), "RS256", kid="r", jwk=public_jwk(rsa_generated())),
    ]
    for token in tokens:
        with pytest.raises(AccessDenied, match="not valid") as caught:
            with_jwks.read(token)
        assert caught.value.status == 401
    for token in (tokens[0], sign(claims, rsa_key, "RS256"), sign(claims, "t" * 32), sign(claims, SECRET * 2, "HS512")):
        with pytest.raises(AccessDenied, match="not valid"):
            with_secret().read(token)


_generated: list[rsa.RSAPrivateKey] = []


def rsa_generated() -> rsa.RSAPrivateKey:
    if not _generated:
        _generated.append(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    return _generated[0]


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://other"},
        {"iss": None},
        {"iss": ["https://issuer"]},
        {"aud": "other"},
        {"aud": None},
        {"aud": ["other", "another"]},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"nbf": 1e14},
        {"iat": 1e14},
        {"nbf": "now"},
        {"sub": 5},
    ],
    ids=str,
)
def test_claims_that_are_missing_or_are_others(with_secret, claims, change):
    payload = {name: value for name, value in (claims | change).items() if value is not None}
    with pytest.raises(AccessDenied, match="not valid") as caught:
        with_secret().read(by_hand({"alg": "HS256"}, payload, SECRET.encode()))
    assert caught.value.status == 401


def test_a_head_that_asks_for_more_is_refused(with_secret, claims):
    for more in ({"crit": ["exp"]}, {"b64": False, "crit": ["b64"]}, {"b64": True}):
        with pytest.raises(AccessDenied, match="not valid"):
            with_secret().read(by_hand({"alg": "HS256", **more}, claims, SECRET.encode()))


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "e30.e30.", "é.é.é", "\ud800", "." * 10_000, "[" * 9_000])
def test_what_is_no_token(with_secret, token):
    with pytest.raises(AccessDenied, match="not valid"):
        with_secret().read(token)


def test_times_have_a_leeway_and_an_end(with_secret, claims, clock, ticks):
    reader = with_secret(leeway_s=10)
    token = sign(claims | {"nbf": int(clock()) + 10})
    assert reader.read(token).tenant == "acme"
    clock.now_s += 609
    ticks.now_s += 609
    assert reader.read(token).tenant == "acme"
    clock.now_s += 1  # the clock alone: what is remembered ends with the token, too
    with pytest.raises(AccessDenied, match="has expired; get a new one"):
        reader.read(token)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tenant": None}, "names no tenant: it needs the claim 'tenant'"),
        ({"tenant": ""}, "'tenant' must be one tenant's name"),
        ({"tenant": 7}, "'tenant' must be one tenant's name"),
        ({"tenant": ["acme"]}, "'tenant' must be one tenant's name"),
        ({"tenant": {"a": 1}}, "'tenant' must be one tenant's name"),
        ({"tenant": "acme\x00"}, "'tenant' must be one tenant's name"),
        ({"tenant": "\ud800"}, "'tenant' must be one tenant's name"),
        ({"tenant": "a" * 257}, "'tenant' must be one tenant's name"),
        ({"role": ["a", "b"]}, "'role' must be one role's name"),
        ({"role": {}}, "'role' must be one role's name"),
        ({"epoch": -1}, "'epoch' must be a whole number"),
        ({"epoch": True}, "'epoch' must be a whole number"),
        ({"epoch": 1.5}, "'epoch' must be a whole number"),
        ({"epoch": 2**44}, "'epoch' must be a whole number"),
    ],
    ids=str,
)
def test_a_valid_token_that_does_not_say_who_asks(with_secret, claims, change, says):
    payload = {name: value for name, value in (claims | change).items() if value is not None}
    with pytest.raises(AccessDenied, match=says) as caught:
        with_secret().read(by_hand({"alg": "HS256"}, payload, SECRET.encode()))
    assert caught.value.status == 403


def test_claims_go_by_the_names_that_are_set(with_secret, claims):
    names = ClaimNames(tenant="https://shop/org", user="email", role="roles", epoch=None)
    payload = claims | {"https://shop/org": "rival", "email": "a@b", "roles": ["boss"], "epoch": 9}
    read = with_secret(claims=names).read(sign(payload))
    assert (read.tenant, read.user, read.role, read.epoch) == ("rival", "a@b", "boss", 0)
    nobody = with_secret(claims=ClaimNames(user=None, role=None)).read(sign(payload | {"role": "boss"}))
    assert (nobody.tenant, nobody.user, nobody.role) == ("acme", None, None)


def test_a_key_set_that_changes(with_jwks, jwks, claims, rsa_key, ec_key, ticks, caplog):
    token = sign(claims, rsa_key, "RS256", kid="r")
    assert with_jwks.read(token).tenant == "acme"

    def put(text: str) -> None:
        (jwks.parent / "new").write_text(text)
        (jwks.parent / "new").rename(jwks)
        for _ in range(3):
            ticks.now_s += CHECK_EVERY_S
            with_jwks.read(sign(claims, ec_key, "ES256", kid="e"))

    put('{"keys": [')
    assert with_jwks.read(token).tenant == "acme"
    assert caplog.text.count("the former one is kept") == 1
    put(json.dumps({"keys": [public_jwk(ec_key, kid="e")]}))
    with pytest.raises(AccessDenied, match="not valid"):  # though it is remembered
        with_jwks.read(token)


def test_only_good_tokens_are_remembered_and_none_in_clear(with_secret, claims, ticks):
    reader = with_secret()
    tokens = [sign(claims | {"jti": str(number)}) for number in range(MAX_REMEMBERED + 50)]
    for token in tokens:
        reader.read(token)
        with pytest.raises(AccessDenied):
            reader.read(token[:-4] + "AAAA")
    assert len(reader._remembered) == MAX_REMEMBERED
    assert all(type(name) is bytes and len(name) == 32 for name in reader._remembered)
    ticks.now_s += REMEMBERED_S + 1
    assert reader.read(tokens[-1]).tenant == "acme"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "no JSON Web Key Set"),
        ("{", "no JSON Web Key Set"),
        ('{"keys": [1]}', "no JSON Web Key Set"),
        ('{"keys": []}', "holds no key for RS256"),
        ('{"keys": [{"kty": "oct", "k": "AAAA"}]}', "is a secret"),
        ('{"keys": [{"kty": "RSA", "n": "AQAB", "e": "!!"}]}', "cannot be read|bits"),
        ('{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA"}]}', "holds no key for RS256"),
    ],
)
def test_key_sets_that_cannot_be_used(tmp_path, content, says):
    path = tmp_path / "jwks.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=says):
        TokenReader(JwtSettings(issuer="i", audience="a", jwks_file=path))


def test_weak_private_and_doubled_keys(tmp_path, rsa_key, ec_key):
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    private = RSAAlgorithm.to_jwk(rsa_key, as_dict=True)
    for keys, says in (
        ([public_jwk(weak)], "has 1024 bits"),
        ([private], "is a secret"),
        ([public_jwk(rsa_key, kid="a"), public_jwk(ec_key, kid="a")], "same kid"),
        ([public_jwk(rsa_key, use="enc")], "holds no key"),
        ([public_jwk(rsa_key, alg="RS512")], "holds no key"),
        ([public_jwk(ec.generate_private_key(ec.SECP384R1()))], "holds no key"),
    ):
        (tmp_path / "jwks.json").write_text(json.dumps({"keys": keys}))
        with pytest.raises(ConfigError, match=says):
            TokenReader(JwtSettings(issuer="i", audience="a", jwks_file=tmp_path / "jwks.json"))


def test_secrets_that_are_too_short_or_none(tmp_path, rsa_key):
    for text, says in (("short", "5 bytes"), (public_pem(rsa_key), "a key of a pair")):
        (tmp_path / "secret").write_text(text)
        with pytest.raises(ConfigError, match=says):
            TokenReader(JwtSettings(issuer="i", audience="a", secret_file=tmp_path / "secret"))
    with pytest.raises(ConfigError, match="cannot be read"):
        TokenReader(JwtSettings(issuer="i", audience="a", secret_file=tmp_path / "none"))


def test_what_is_not_installed_is_named(monkeypatch, with_secret):
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(MissingExtra, match=r"PyJWT is not installed.*cachestack\[gateway\]"):
        with_secret()


def test_one_kind_of_key(tmp_path):
    for more in ({}, {"secret_env": "A", "jwks_file": tmp_path}):
        with pytest.raises(ValidationError, match="exactly one of"):
            JwtSettings(issuer="i", audience="a", **more)
    assert os.environ.get("A") is None
