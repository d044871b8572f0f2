"""Bad requests are refused with a sentence that says what is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cachestack.asking import as_request, build_request
from cachestack.errors import RequestError
from cachestack.requests import Message, Request, Sampling, Usage, as_messages


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: build_request(""), "prompt is empty"),
        (lambda: build_request("  \n"), "prompt is empty"),
        (lambda: build_request([]), "at least one message"),
        (lambda: build_request(b"x"), "not bytes"),  # type: ignore[arg-type]
        (lambda: build_request([{"role": "user"}]), "role and content"),
        (lambda: build_request([{"role": "robot", "content": "x"}]), "allowed: system"),
        (lambda: build_request([{"role": "user", "content": ["x"]}]), "must be text, not list"),
        (lambda: build_request([{"role": "user", "content": "x", "name": "y"}]), r"\['name'\] are not supported"),
        (lambda: build_request("x", tenant=""), "1 to 256"),
        (lambda: build_request("x", temperature=-1), "temperature must be between"),
        (lambda: build_request("x", temperature=float("nan")), "temperature must be between"),
        (lambda: build_request("x", top_p=0), "top_p must be above 0"),
        (lambda: build_request("x", max_new_tokens=0), "at least 1"),
        (lambda: build_request("x", n=0), "n must be at least 1"),
        (lambda: build_request("x", stop=[""]), "stop string"),
        (lambda: build_request("x", ttl_s=0), "ttl_s must be a positive"),
        (lambda: build_request("x", ttl_s=float("inf")), "ttl_s must be a positive"),
        (lambda: build_request("x", stable_messages=2), "between 0 and 1"),
        (lambda: build_request("x", tags="news"), "tags must be a list"),
        (lambda: build_request("x", tags=["news", 3]), "tags must be a tuple of texts"),  # type: ignore[list-item]
        (lambda: build_request("x", tenant=5), "tenant must be text, not 5"),  # type: ignore[arg-type]
        (lambda: build_request("x", tenant=None), "tenant must be text, not None"),  # type: ignore[arg-type]
        (lambda: build_request("x", user=True), "user must be text, not True"),  # type: ignore[arg-type]
        (lambda: build_request("x", role=1.0), "role must be text, not 1.0"),  # type: ignore[arg-type]
        (lambda: build_request("x", version=2), "version must be text, not 2"),  # type: ignore[arg-type]
        (lambda: build_request("x", temperature="hot"), "temperature must be a number"),  # type: ignore[arg-type]
        (lambda: build_request("x", temperature=True), "temperature must be a number"),
        (lambda: build_request("x", seed=1.5), "seed must be a whole number"),  # type: ignore[arg-type]
        (lambda: build_request("x", max_new_tokens="9"), "must be a whole number"),  # type: ignore[arg-type]
        (lambda: build_request("x", n=None), "n must be a whole number"),  # type: ignore[arg-type]
        (lambda: build_request("x", ttl_s="60"), "ttl_s must be a number"),  # type: ignore[arg-type]
        (lambda: Request((Message("user", "x"),), extra=[1]), "extra must map"),  # type: ignore[arg-type]
    ],
)
def test_bad_requests(make: Callable[[], object], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        make()


def test_a_request_is_taken_as_it_is() -> None:
    request = Request((Message("user", "x"),), tenant="t")
    assert as_request(request) is request


@pytest.mark.parametrize("options", [{"tenant": "other"}, {"user": "u"}, {"extra": {"a": 1}}, {"store": False}])
def test_options_beside_a_request_are_not_dropped_silently(options: dict[str, object]) -> None:
    request = Request((Message("user", "x"),), tenant="t")
    with pytest.raises(RequestError, match=f"put {next(iter(options))} into it"):
        as_request(request, **options)


def test_text_and_messages_and_system() -> None:
    assert as_messages("x", "s") == (Message("system", "s"), Message("user", "x"))
    assert as_messages([{"role": "user", "content": "x"}, Message("assistant", "y")]) == (
        Message("user", "x"),
        Message("assistant", "y"),
    )


def test_one_stop_string_is_not_a_list_of_letters() -> None:
    assert build_request("x", stop="END").sampling == Sampling(stop=("END",))


def test_usage_adds_up() -> None:
    assert Usage(10, 4, 3).total_tokens == 13
