"""An integration whose library is not there says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest

from cachestack.errors import MissingExtra


@pytest.mark.parametrize(
    ("module", "library", "advice"),
    [
        ("langchain", "langchain_core.caches", r"pip install 'cachestack\[langchain\]'"),
        ("langchain_chat", "langchain_core.callbacks", r"pip install 'cachestack\[langchain\]'"),
        ("litellm", "litellm.caching.caching", "pip install litellm"),
    ],
)
def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, module: str, library: str, advice: str) -> None:
    monkeypatch.delitem(sys.modules, f"cachestack.integrations.{module}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=advice):
        importlib.import_module(f"cachestack.integrations.{module}")
