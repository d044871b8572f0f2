"""Which wrapped functions share answers: never two that may answer otherwise, unless someone says that they do not."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cachestack.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cachestack.stack import CacheStack
    from tests.core.conftest import MakeStack


@pytest.fixture
def stack(make_stack: MakeStack) -> CacheStack:
    return make_stack(meaning=False)


def wrap(stack: CacheStack, function: Callable[..., Any], **options: Any) -> Any:
    return stack.wrap(tenant="t", model="m", **options)(function)


def test_two_lambdas_do_not_share(stack: CacheStack) -> None:
    first, second = wrap(stack, lambda prompt: "one"), wrap(stack, lambda prompt: "two")
    assert [first("Hello there"), second("Hello there")] == ["one", "two"]


def test_functions_made_with_other_values_do_not_share(stack: CacheStack) -> None:
    def make(tone: object) -> Callable[[str], str]:
        def ask(prompt: str) -> str:
            return f"{tone}"

        return ask

    asks = [wrap(stack, make(tone)) for tone in ("dry", "warm", 1, 1.0, True, ("a",), ["a"])]
    assert [ask("Hello there") for ask in asks] == ["dry", "warm", "1", "1.0", "True", "('a',)", "['a']"]
    assert wrap(stack, make("dry")).respond("Hello there").trace.served_from == "exact"


def test_functions_around_functions_do_not_share(stack: CacheStack) -> None:
    def loud(function: Callable[[str], str]) -> Callable[[str], str]:
        @functools.wraps(function)
        def louder(prompt: str) -> str:
            return function(prompt).upper()

        return louder

    asks = [wrap(stack, loud(lambda prompt: "one")), wrap(stack, loud(lambda prompt: "two"))]
    assert [ask("Hello there") for ask in asks] == ["ONE", "TWO"]


def test_an_edited_function_does_not_answer_with_what_it_said_before(stack: CacheStack) -> None:
    answers = []
    for body in ("return 'before'", "return 'after'", "# a comment\n    return 'after'"):
        module: dict[str, Any] = {"__name__": "script"}
        exec(f"def ask(prompt):\n    {body}", module)
        response = wrap(stack, module["ask"]).respond("Hello there")
        answers.append((response.text, response.trace.served_from))
    assert answers == [("before", "engine"), ("after", "engine"), ("after", "exact")]


def test_functions_around_objects_are_told_apart_or_refused(stack: CacheStack) -> None:
    def make(client: object) -> Callable[[str], str]:
        return lambda prompt: f"{client is mine}"

    mine, other = object(), object()
    assert wrap(stack, make(mine))("Hello there") == "True"
    assert wrap(stack, make(mine))("Hello there") == "True"
    with pytest.raises(UsageError, match="wrapped before with other objects around it"):
        wrap(stack, make(other))
    assert wrap(stack, make(other), name="other")("Hello there") == "False"


class Client:
    def __init__(self, answer: str) -> None:
        self.answer = answer

    def ask(self, prompt: str) -> str:
        return self.answer

    __call__ = ask


@pytest.mark.parametrize(
    "function", [Client("x").ask, Client("x"), functools.partial(Client.ask, Client("x")), str.upper, str],
    ids=["method", "object", "partial", "builtin", "type"],
)  # fmt: skip
def test_what_has_no_code_of_its_own_needs_a_name(stack: CacheStack, function: Any) -> None:
    with pytest.raises(UsageError, match="give wrap"):
        wrap(stack, function)


def test_a_method_with_a_name_works(stack: CacheStack) -> None:
    asks = [wrap(stack, Client(answer).ask, name=answer) for answer in ("one", "two")]
    assert [ask("Hello there") for ask in asks] == ["one", "two"]


def test_a_function_that_calls_itself_has_an_identity(stack: CacheStack) -> None:
    def ask(prompt: str) -> str:
        return "x" if prompt == "Hello" else ask("Hello")

    assert wrap(stack, ask)("Hello there") == "x"


SCRIPT = """
from cachestack.identity import Identities
def ask(prompt):
    return "x" if prompt in {"a", "b", "c", "d"} else (lambda: {1, 2, 3})()
print(Identities().identify(ask))
"""


def test_the_identity_is_the_same_in_another_process() -> None:
    def run(seed: str) -> bytes:
        return subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
        ).stdout

    path = ":".join(sys.path)
    assert run("1") == run("2") != b""


@pytest.mark.parametrize("option", ["temprature", "extra", "prompt"])
def test_an_option_that_wrap_does_not_take_is_named_at_once(stack: CacheStack, option: str) -> None:
    with pytest.raises(UsageError, match=f"wrap.* does not take {option}"):
        wrap(stack, lambda prompt: "x", **{option: 1})


@pytest.mark.parametrize("tenant", [None, 5, ["t"]])
def test_a_tenant_that_is_no_name_is_refused(stack: CacheStack, tenant: object) -> None:
    ask = stack.wrap(tenant=lambda prompt: tenant, model="m")(lambda prompt: "x")  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError, match="tenant must be text"):
        ask("Hello there")


def test_a_request_is_no_prompt_for_a_wrapped_function(stack: CacheStack) -> None:
    """It would bring its own tenant, and leave the function out of the contract."""
    from cachestack.requests import Message, Request

    with pytest.raises(UsageError, match="a prompt is text or a list of messages"):
        wrap(stack, lambda prompt: "x")(Request((Message("user", "Hello"),), tenant="other"))
