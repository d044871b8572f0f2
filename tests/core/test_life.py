"""The end of a stack: closed, closed twice, used afterwards, forked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cachestack.errors import UsageError
from cachestack.requests import Generation, Request
from cachestack.stack import CacheStack

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.core.conftest import MakeStack


class Echo:
    name = model = "echo"

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield "an answer"
        return Generation("an answer")


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.chat("Hello there"),
        lambda s: next(s.stream("Hello there")),
        lambda s: s.explain("Hello there"),
        lambda s: s.compare("Hello there", "Hello"),
        lambda s: s.invalidate(tenant="default"),
        lambda s: s.report_wrong("x", tenant="default"),
        lambda s: s.wrap(tenant="t", model="m", name="f")(lambda prompt: "x")("Hello there"),
    ],
)
def test_a_closed_stack_says_so(make_stack: MakeStack, use: Callable[[CacheStack], object]) -> None:
    stack = make_stack(engines={"echo": Echo()}, meaning=False)
    stack.chat("Hello there")
    stack.close()
    stack.close()
    with pytest.raises(UsageError, match="this stack was closed"):
        use(stack)


def test_what_is_under_way_when_it_is_closed_ends_with_its_answer(make_stack: MakeStack) -> None:
    asked, closed = threading.Event(), threading.Event()

    class Slow(Echo):
        def stream(self, request: Request) -> Generator[str, None, Generation]:
            asked.set()
            assert closed.wait(10)
            return (yield from super().stream(request))

    stack, answers = make_stack(engines={"slow": Slow()}, meaning=False), []
    thread = threading.Thread(target=lambda: answers.append(stack.chat("Hello there").text))
    thread.start()
    assert asked.wait(10)
    stack.close()
    closed.set()
    thread.join(10)
    assert answers == ["an answer"]


FORKS = """
import os, sys
from cachestack.stack import CacheStack
stack = CacheStack.without_engine(encoder="none", home=sys.argv[1])
ask = stack.wrap(tenant="t", model="m", name="f")(lambda prompt: f"by {os.getpid()}")
one = ask("One thing")
child = os.fork()
if child == 0:
    assert ask("One thing") == one
    ask("Another thing")
    sys.exit(0)  # with all that runs at exit
assert os.waitpid(child, 0)[1] == 0
assert ask("One thing") == one
assert ask("Another thing") == f"by {child}"
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_forked_process_shares_the_folder_and_counts_only_its_own(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)], check=True, timeout=60)
    with CacheStack.without_engine(encoder="none", home=tmp_path) as stack:
        stats = stack.stats().by_tenant["t"]
    assert (stats.requests, stats.engine_calls, stats.semantic.hits) == (5, 2, {"exact": 3})
