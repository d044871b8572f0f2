"""Policies follow their file: what changes is taken, what is wrong is not, requests under way keep what they had."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cachestack.decisions import Layer, Reason
from cachestack.errors import PolicyError
from cachestack.policy_set import PolicySet
from cachestack.policy_watch import PolicyWatch
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.stack import CacheStack
from cachestack.stores.memory import MemoryStore
from cachestack.watched_file import CHECK_EVERY_S, WatchedFile


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def ticks() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "policies.yaml"
    path.write_text(text(1))
    return path


@pytest.fixture
def watch(path: Path, ticks: Clock) -> PolicyWatch:
    return PolicyWatch(path, clock=ticks, wall_clock=lambda: 1.8e9 + ticks.now_s)


def text(ttl_s: int) -> str:
    return f"default: {{retention: {{ttl_s: {ttl_s}}}}}\n"


def ttl(watch: PolicyWatch) -> float:
    return watch.current().policy("any").retention.ttl_s


def later(watch: PolicyWatch, ticks: Clock, num_checks: int = 2) -> float:
    for _ in range(num_checks):
        ticks.now_s += CHECK_EVERY_S
        watch.current()
    return ttl(watch)


def by_rename(path: Path, content: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(content)
    new.rename(path)


def in_place(path: Path, content: str) -> None:
    path.write_text(content)


def by_backup(path: Path, content: str) -> None:
    path.rename(path.with_suffix(".bak"))
    path.write_text(content)


@pytest.mark.parametrize("write", [by_rename, in_place, by_backup])
def test_a_change_is_taken_within_two_checks(
    path: Path, watch: PolicyWatch, ticks: Clock, write: Callable[[Path, str], None]
) -> None:
    write(path, text(22))
    assert ttl(watch) == 1  # nobody looks yet
    assert 2 * CHECK_EVERY_S <= 1
    assert later(watch, ticks) == 22
    assert watch.state().error is None
    assert watch.state().loaded_at_s == 1.8e9 + ticks.now_s
    write(path, text(333))
    assert later(watch, ticks) == 333


def test_a_file_that_is_being_written_is_left_alone(path: Path, watch: PolicyWatch, ticks: Clock) -> None:
    """A beginning of a policy file may itself be right, and lack the tenants that come later."""
    with path.open("w") as file:
        for number in range(6):
            file.write(f"# line {number}\n")
            file.flush()
            assert later(watch, ticks, 1) == 1
        file.write(text(5))
    assert later(watch, ticks) == 5
    assert watch.state().error is None


def test_what_was_written_while_it_was_read_is_read_again(path: Path, ticks: Clock) -> None:
    """The reader got the first half of one version and the second half of the next."""
    versions = iter(["first", "torn", "whole"])

    def load(path: Path) -> str:
        version = next(versions)
        if version == "torn":
            path.write_text("# another one, longer than before\n")
        return version

    watched = WatchedFile(path, load, what="a test's file", clock=ticks)
    in_place(path, text(22))
    seen = []
    for _ in range(5):
        ticks.now_s += CHECK_EVERY_S
        seen.append(watched.value())
    assert seen == ["first", "first", "first", "whole", "whole"]


def test_a_bad_file_keeps_the_old_policies_and_says_so_once(
    path: Path, watch: PolicyWatch, ticks: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    by_rename(path, "default: {retention: {ttl: 5}}")
    assert later(watch, ticks, 30) == 1
    assert "ttl: unknown key" in (watch.state().error or "")
    assert watch.state().loaded_at_s == 1.8e9 + 1000
    assert caplog.text.count("the former one is kept") == 1
    by_rename(path, text(7))
    assert later(watch, ticks) == 7
    assert watch.state().error is None


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.unlink(), "is not there any more"),
        (lambda path: path.write_text(""), "is empty"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "cannot be read"),
        (lambda path: (path.unlink(), path.mkdir()), "is a folder"),
        (lambda path: path.write_text("[" * 5000), "nested too deeply|not valid YAML"),
    ],
)
def test_files_that_are_no_policies(
    path: Path, watch: PolicyWatch, ticks: Clock, spoil: Callable[[Path], object], says: str
) -> None:
    spoil(path)
    assert later(watch, ticks, 3) == 1
    with pytest.raises(PolicyError, match=says):
        raise PolicyError(watch.state().error)


def test_a_file_that_comes_back(path: Path, watch: PolicyWatch, ticks: Clock) -> None:
    aside = path.with_suffix(".aside")
    path.rename(aside)
    assert later(watch, ticks, 2) == 1
    assert watch.state().error
    aside.rename(path)
    assert later(watch, ticks, 2) == 1
    assert watch.state().error is None


def test_a_link_that_is_moved(tmp_path: Path, ticks: Clock) -> None:
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "p.yaml").write_text(text(number))
    (tmp_path / "now").symlink_to(tmp_path / "1")
    watch = PolicyWatch(tmp_path / "now" / "p.yaml", clock=ticks)
    (tmp_path / "next").symlink_to(tmp_path / "2")
    os.replace(tmp_path / "next", tmp_path / "now")
    assert later(watch, ticks) == 2


def test_a_relative_path_stays_where_it_was(path: Path, ticks: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    watch = PolicyWatch(path.name, clock=ticks)
    monkeypatch.chdir("/")
    in_place(path, text(9))
    assert later(watch, ticks) == 9


def test_the_first_load_must_succeed(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="does not exist"):
        PolicyWatch(tmp_path / "none.yaml")


def test_fixed_policies_are_never_looked_up(ticks: Clock) -> None:
    for policies in (None, "default", PolicySet.parse(text(3), "given")):
        watch = PolicyWatch(policies, clock=ticks)
        ticks.now_s += 10
        assert watch.state() == replace(watch.state(), error=None)
        assert watch.current() is watch.current()
    assert watch.state().source == "given"


def test_the_file_is_looked_at_at_most_every_half_second(
    path: Path, watch: PolicyWatch, ticks: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    monkeypatch.setattr("cachestack.watched_file._signature", lambda path: looks.append(ticks()))
    for _ in range(1000):
        ticks.now_s += 0.01
        watch.current()
    assert 15 <= len(looks) <= 20


def test_threads_see_one_version_or_the_other(path: Path, ticks: Clock) -> None:
    """A writer and readers at once: every policy seen is one that was written, whole, and the last one is reached."""
    watch, rng = PolicyWatch(path, clock=ticks), random.Random(1)
    barrier, done = threading.Barrier(5), threading.Event()

    def both(ttl_s: int) -> str:
        return f"default: {{retention: {{ttl_s: {ttl_s}}}, semantic: {{encoder_deadline_ms: {ttl_s}}}}}\n"

    def read(_: int) -> set[tuple[float, float]]:
        barrier.wait()
        seen = set()
        while not done.is_set():
            ticks.now_s += CHECK_EVERY_S / 10
            policy = watch.current().policy("any")
            seen.add((policy.retention.ttl_s, policy.semantic.encoder_deadline_ms))
        return seen

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read, number) for number in range(4)]
        barrier.wait()
        for number in range(2, 60):
            rng.choice((by_rename, by_backup, in_place))(path, both(number))
        done.set()
        seen = set().union(*(reader.result() for reader in readers))
    assert all(one == other or (one, other) == (1, 1000) for one, other in seen)
    assert later(watch, ticks, 3) == 59


def make_stack(watch: PolicyWatch | None) -> CacheStack:
    return CacheStack(
        engines={},
        store=MemoryStore(),
        index=None,
        encoder=None,
        prefix=PrefixLayer(BlockPool(max_bytes=1024), secret=b"test"),
        policies=watch,
    )


def test_a_request_under_way_keeps_its_policy(path: Path, watch: PolicyWatch, ticks: Clock) -> None:
    """The policy is switched off while the model works; what it answers is kept as the request began."""
    stack = make_stack(watch)
    calls: list[str] = []

    @stack.wrap(tenant="acme", model="m")
    def answer(prompt: str) -> str:
        calls.append(prompt)
        by_rename(path, "default: {semantic: {enabled: false}}")
        later(watch, ticks)
        assert not stack.policies.policy("acme").semantic.enabled
        return "an answer"

    first = answer.respond("How do I pay?")
    assert first.trace.step(Layer.SETTLE).reason is Reason.STORED, "it began while the cache was on"
    assert answer.respond("How do I pay?").trace.served_from == "engine"
    by_rename(path, text(60))
    later(watch, ticks)
    assert answer.respond("How do I pay?").trace.served_from != "engine"
    assert len(calls) == 2
    stack.close()


def test_the_statistics_say_which_policies_hold(path: Path, watch: PolicyWatch, ticks: Clock) -> None:
    stack = make_stack(watch)
    assert stack.stats().as_dict()["policy"] == {"source": str(path), "loaded_at_s": 1.8e9 + 1000, "error": None}
    by_rename(path, "nonsense")
    later(watch, ticks)
    assert "must be a mapping" in stack.stats().as_dict()["policy"]["error"]
    stack.close()


def test_a_stack_that_is_built_from_a_path_follows_it(path: Path, tmp_path: Path) -> None:
    with CacheStack.without_engine(encoder="none", policies=path, home=tmp_path / "home") as stack:
        assert stack.stats().policy is not None
        assert stack.stats().policy.source == str(path)
        assert stack._policies._file is not None
        stack.policies = PolicySet.parse(text(3), "given")
        assert stack.policies.policy("any").retention.ttl_s == 3
