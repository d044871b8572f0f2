"""A clock that tests move, and keys of issuers."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from cachestack.access import KeyStore


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now_s: float = 1_800_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ticks() -> Clock:
    return Clock(100.0)


@pytest.fixture
def store(tmp_path: Path, clock: Clock, ticks: Clock):
    store = KeyStore(tmp_path, clock=clock, ticks=ticks, start=lambda work: work())
    yield store
    store.close()


@pytest.fixture(scope="session")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="session")
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())
