"""From one encoder to another under traffic: all is found all along, and a killed process goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from cachestack.errors import EncoderError
from cachestack.keys import Partition
from cachestack.semantic.encoder_change import EncoderChange
from cachestack.semantic.known_encoders import KnownEncoders, RecognisedEncoder
from cachestack.stack import CacheStack
from cachestack.stores.disk import DiskStore
from tests.semantic.test_embed_known import TurnedEncoder, perturbed_copy
from tests.semantic.test_index_encoders import entry_of, vector_of

ACME = Partition("acme")
LONG_S = 120.0
QUESTIONS = [
    ("How do I reset my password?", "how do I reset my password"),
    ("How do I close my account?", "Please, how do I close my account?"),
    ("What are the opening hours in Leeds?", "what are the opening hours in Leeds"),
    ("How do I track my parcel?", "how do I track my parcel"),
]


class Other(TurnedEncoder):
    """Another encoder: other vectors, another fingerprint."""

    def __init__(self, fingerprint, angle=0.0, dimension=26):
        super().__init__(angle, dimension, fingerprint)
        self.num_encoded = 0
        self.refuses: set[str] = set()

    def encode(self, texts):
        if self.refuses & set(texts):
            raise EncoderError("not this one")
        self.num_encoded += len(texts)
        return super().encode(texts)


def opened(folder, old, new, **settings):
    """A store with entries of `old`, and the change to `new`, as a process finds them."""
    known = KnownEncoders(folder / "encoders")
    store = DiskStore(folder / "entries")
    recognised = RecognisedEncoder(new, known, "new")

    def open_encoder(ref):
        if ref != "old" or old is None:
            raise EncoderError("gone")
        return old

    return store, EncoderChange(store, known, recognised, open_encoder, **settings)


def fill(folder, old, num=20):
    known, store = KnownEncoders(folder / "encoders"), DiskStore(folder / "entries")
    known.recognise(old, "old")
    assert known.use(old.fingerprint) == ()
    entries = [entry_of(f"question {i}", vector_of(old, f"question {i}"), old.fingerprint, i) for i in range(num)]
    for entry in entries:
        store.put(entry)
    store.close()
    return entries


def test_all_entries_get_the_new_vectors_and_nothing_else_changes(tmp_path):
    old, new = Other("old-1"), Other("new-1", dimension=40)
    entries = fill(tmp_path, old)
    store, change = opened(tmp_path, old, new, batch=3)
    assert change.former(ACME) is old
    change.move(ACME)
    change.move(ACME)
    assert change.wait(LONG_S)
    assert change.former(ACME) is None
    progress = change.progress()
    assert (progress.num_partitions, progress.num_partitions_done) == (1, 1)
    assert (progress.num_done, progress.num_left) == (20, 0)
    for before in entries:
        after = store.get(ACME, before.entry_id)
        assert (after.encoder, after.vector) == ("new-1", vector_of(new, before.question))
        assert (after.answer, after.exact, after.expires_at_s) == (before.answer, before.exact, before.expires_at_s)
    num_encoded = new.num_encoded
    store.close()
    store, again = opened(tmp_path, old, new)
    assert again.is_done(ACME)
    again.move(ACME)
    assert again.wait(LONG_S)
    assert new.num_encoded == num_encoded + 8, "only the canaries"
    store.close()


def test_nothing_is_looked_at_where_there_was_no_other_encoder(tmp_path):
    only = Other("only")
    fill(tmp_path, only)
    store, change = opened(tmp_path, None, only)
    assert not change.has_former
    assert change.former(ACME) is None
    change.move(ACME)
    assert change.progress().num_partitions == 0
    store.close()


def test_an_encoder_that_is_gone_leaves_its_entries_exact_only_until_they_are_moved(tmp_path):
    entries = fill(tmp_path, Other("old-1"))
    store, change = opened(tmp_path, None, Other("new-1"))
    assert change.has_former
    assert change.former(ACME) is None
    change.move(ACME)
    assert change.wait(LONG_S)
    assert change.progress().num_done == len(entries)
    store.close()


def test_an_encoder_of_the_same_name_that_is_not_the_one_before_is_not_used(tmp_path):
    fill(tmp_path, Other("old-1"))
    store, change = opened(tmp_path, Other("old-1", angle=0.3), Other("new-1"))
    assert change.former(ACME) is None
    store.close()


def test_one_bad_entry_costs_only_itself(tmp_path):
    new = Other("new-1")
    new.refuses = {"question 7"}
    fill(tmp_path, Other("old-1"))
    store, change = opened(tmp_path, None, new, batch=5)
    change.move(ACME)
    assert change.wait(LONG_S)
    assert (change.progress().num_done, change.progress().num_left) == (19, 1)
    assert change.is_done(ACME)
    store.close()


def test_an_encoder_that_fails_is_tried_again(tmp_path):
    old, new = Other("old-1"), Other("new-1")
    entries = fill(tmp_path, old)
    store, change = opened(tmp_path, old, new, batch=5)
    assert change.has_former
    new.refuses = {e.question for e in entries}
    change.move(ACME)
    assert change.wait(LONG_S)
    assert not change.is_done(ACME)
    assert change.former(ACME) is old
    new.refuses = set()
    change.move(ACME)
    assert change.wait(LONG_S)
    assert change.is_done(ACME)
    assert change.progress().num_done == len(entries)
    store.close()


def test_closing_stops_it_and_the_next_process_goes_on(tmp_path):
    old = Other("old-1")

    class Stopping(Other):
        def encode(self, texts):
            if len(texts) == 2 and self.num_encoded > 12:
                change._background._stopping.set()
            return super().encode(texts)

    new = Stopping("new-1")
    fill(tmp_path, old)
    store, change = opened(tmp_path, old, new, batch=2)
    change.move(ACME)
    assert change.wait(LONG_S)
    num_done = change.progress().num_done
    assert 0 < num_done < 20
    assert not change.is_done(ACME)
    store.close()
    store, change = opened(tmp_path, old, Other("new-1"), batch=2)
    change.move(ACME)
    assert change.wait(LONG_S)
    assert change.progress().num_done == 20 - num_done
    store.close()


def test_kill_in_the_middle(tmp_path):
    old, new = Other("old-1"), Other("new-1", dimension=40)
    entries = fill(tmp_path, old, 60)
    program = f"""
import time
from pathlib import Path
from tests.semantic import test_embed_change as t
class Slow(t.Other):
    def encode(self, texts):
        time.sleep(0.01)
        return super().encode(texts)
store, change = t.opened(Path({str(tmp_path)!r}), None, Slow("new-1", dimension=40), batch=2)
change.move(t.ACME)
while change.progress().num_done < 10:
    time.sleep(0.002)
print("going", flush=True)
change.wait()
"""
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=dict(os.environ))
        assert child.stdout.readline() == b"going\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
    store, change = opened(tmp_path, old, new)
    assert store.problems() == []
    made = [store.get(ACME, e.entry_id).encoder for e in entries]
    assert made.count("new-1") >= 20
    assert set(made) <= {"old-1", "new-1"}
    for entry in entries:
        kept = store.get(ACME, entry.entry_id)
        assert kept.vector == vector_of(old if kept.encoder == "old-1" else new, kept.question), "never half"
    change.move(ACME)
    assert change.wait(LONG_S)
    assert change.progress().num_done == made.count("old-1")
    assert {store.get(ACME, e.entry_id).encoder for e in entries} == {"new-1"}
    store.close()


# the whole way, with a real model


def answer(prompt: str) -> str:
    return "an answer"


def test_questions_hit_all_along_with_a_real_model(encoder_path, tmp_path, monkeypatch):
    changed = perturbed_copy(encoder_path, tmp_path / "changed", 0.02)
    home, policies = tmp_path / "home", tmp_path / "policies.yaml"
    policies.write_text("default: {semantic: {verifiers: [lexical], encoder_deadline_ms: 60000}}")
    with CacheStack.without_engine(encoder=str(encoder_path), policies=policies, home=home) as stack:
        ask = stack.wrap(tenant="acme", model="m")(answer)
        for question, _ in QUESTIONS:
            assert ask.respond(question).trace.served_from == "engine"
        assert all(ask.respond(other).trace.served_from == "semantic" for _, other in QUESTIONS)
        assert stack.stats().reembedding is None
    with CacheStack.without_engine(encoder=str(changed), policies=policies, home=home) as stack:
        ask = stack.wrap(tenant="acme", model="m")(answer)
        monkeypatch.setattr(stack.performer.change, "_background", held := Held())
        for _, other in QUESTIONS:
            assert ask.respond(other).trace.served_from == "semantic", "by the old encoder"
        assert ask.respond("Where do I find my contract?").trace.served_from == "engine", "a new answer, a new vector"
        [job] = held.jobs
        stop_after_one = iter([False, True, True, True])
        stack.performer.change._batch = 2
        job(lambda: next(stop_after_one))
        assert stack.stats().reembedding.num_done == 2
        for _, other in QUESTIONS:
            assert ask.respond(other).trace.served_from == "semantic", "two by each"
        job(lambda: False)
        assert stack.stats().as_dict()["reembedding"]["num_partitions_done"] == 1
        for _, other in QUESTIONS:
            assert ask.respond(other).trace.served_from == "semantic", "by the new encoder"
        assert stack.performer.change.former(ACME) is None
        assert {e.encoder for e in stack.performer.store.entries(ACME)} == {stack.performer.encoder.fingerprint}


class Held:
    """Jobs that run when the test says so."""

    def __init__(self):
        self.jobs = []

    def submit(self, key, job):
        self.jobs.append(job)

    def close(self):
        pass


def test_an_exact_hit_loads_no_model_after_a_change(tmp_path):
    fill(tmp_path, Other("old-1"))
    store, change = opened(tmp_path, None, Other("new-1"))
    from cachestack.effects import Touch
    from cachestack.performer import Performer

    performer = Performer(store, None, change._encoder, change=change)
    performer.perform(Touch(ACME, "x"), {})
    assert change._encoder._fingerprint is None
    performer.close()
