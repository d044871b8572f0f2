"""The order of the layers, over wrapped functions: hits, walls, bypasses, fallback, settling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cachestack.decisions import Layer, Outcome, Reason, Response
from cachestack.engines.base import TextStream
from cachestack.errors import ConfigError, EngineError, RequestError
from cachestack.requests import Generation, Message, Request, Usage
from cachestack.stack import CacheStack

if TYPE_CHECKING:
    from tests.core.conftest import Clock, MakeStack


class Echo:
    """An engine that numbers its answers, and fails as often as it is told to."""

    def __init__(self, name: str = "echo", *, failures: int = 0, finish: str = "stop", pieces: int = 1) -> None:
        self.name = name
        self.model = "echo-1"
        self.calls = 0
        self.failures = failures
        self.finish = finish
        self.pieces = pieces
        self.fails_after_text = False

    def stream(self, request: Request) -> TextStream:
        self.calls += 1
        if self.failures and not self.fails_after_text:
            self.failures -= 1
            raise EngineError("down")
        text = f"answer {self.calls} to {request.question}"
        cut = -(-len(text) // self.pieces)
        for start in range(0, len(text), cut):
            yield text[start : start + cut]
            if self.failures:
                self.failures -= 1
                raise EngineError("broke off")
        return Generation(text, "length" if self.finish == "length" else "stop", Usage(10, 0, 5), 0.5, 0.1)


@pytest.fixture
def engine() -> Echo:
    return Echo()


@pytest.fixture
def stack(make_stack: MakeStack, engine: Echo) -> CacheStack:
    return make_stack(engines={"echo": engine})


def reason(response: Response, layer: Layer = Layer.SEMANTIC) -> Reason:
    step = response.trace.step(layer)
    assert step is not None
    return step.reason


def test_exact_then_by_meaning_then_the_engine(stack: CacheStack, engine: Echo) -> None:
    first = stack.chat("How do I reset my password?", tenant="acme")
    again = stack.chat("How do I reset my password?", tenant="acme")
    similar = stack.chat("How can I reset my password?", tenant="acme")
    other = stack.chat("What are your opening hours?", tenant="acme")
    assert [r.trace.served_from for r in (first, again, similar, other)] == ["engine", "exact", "semantic", "engine"]
    assert again.text == similar.text == first.text
    assert again.hit_id == similar.hit_id == first.hit_id
    assert again.usage.completion_tokens == 5
    assert engine.calls == 2


@pytest.mark.parametrize("question", ["How do I reset my password?", "How can I reset my password?"])
@pytest.mark.parametrize(
    "options",
    [
        {"tenant": "other"},
        {"system": "Be formal."},
        {"temperature": 0.1},
        {"seed": 3},
        {"stop": "x"},
        {"max_new_tokens": 9},
        {"response_format": {"type": "json_object"}},
        {"extra": {"locale": "fr"}},
        {"version": "2"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_another_contract_or_tenant_never_hits(
    stack: CacheStack, engine: Echo, options: dict[str, object], question: str
) -> None:
    stack.chat("How do I reset my password?", tenant="acme")
    assert stack.explain(question, tenant="acme").would != "engine"
    answer = stack.chat(question, **({"tenant": "acme"} | options))  # type: ignore[arg-type]
    assert (answer.trace.served_from, engine.calls) == ("engine", 2)


def test_another_history_never_hits(stack: CacheStack) -> None:
    def talk(first: str) -> Response:
        turns = [Message("user", first), Message("assistant", "I see."), Message("user", "Please cancel it.")]
        return stack.chat(turns, tenant="acme")

    talk("I ordered a lamp.")
    assert talk("I booked a flight.").trace.served_from == "engine"
    assert talk("I ordered a lamp.").trace.served_from == "exact"


@pytest.mark.parametrize(
    ("policy", "options", "why"),
    [
        ("default: {semantic: {enabled: false}}", {}, Reason.DISABLED),
        ("", {"temperature": 0.9}, Reason.TEMPERATURE),
        ("", {"tools": [{"name": "f"}]}, Reason.TOOLS),
        ("", {"n": 2}, Reason.MANY_ANSWERS),
        ("default: {semantic: {walls: [user]}}", {}, Reason.NO_PRINCIPAL),
        ("default: {semantic: {walls: [role]}}", {"user": "u"}, Reason.NO_PRINCIPAL),
        ("", {"extra": {"f": object()}}, Reason.UNCACHEABLE_ARGUMENT),
    ],
)
def test_bypasses_neither_read_nor_write(
    make_stack: MakeStack, engine: Echo, policy: str, options: dict[str, object], why: Reason
) -> None:
    stack = make_stack(policy, engines={"echo": engine})
    for _ in range(2):
        response = stack.chat("Hello there", tenant="acme", **options)  # type: ignore[arg-type]
        assert (reason(response), response.hit_id) == (why, None)
    assert engine.calls == 2
    assert stack.performer.store.size().num_entries == 0
    assert stack.stats().by_tenant["acme"].semantic.bypasses == {why.value: 2}


def test_an_omitted_temperature_is_cacheable_and_a_set_one_up_to_the_policy(make_stack: MakeStack) -> None:
    stack = make_stack("default: {semantic: {max_temperature: 0.5}}", engines={"echo": Echo()})
    for temperature, served in ((None, "exact"), (0.0, "exact"), (0.5, "exact"), (0.51, "engine")):
        stack.chat("Hello there", temperature=temperature)
        assert stack.chat("Hello there", temperature=temperature).trace.served_from == served, temperature


def test_users_and_roles_are_walls(make_stack: MakeStack, engine: Echo) -> None:
    stack = make_stack("default: {semantic: {walls: [user, role]}}", engines={"echo": engine})
    stack.chat("Hello there", user="ann", role="staff")
    for user, role, served in (("bob", "staff", "engine"), ("ann", "guest", "engine"), ("ann", "staff", "exact")):
        assert stack.chat("Hello there", user=user, role=role).trace.served_from == served


def test_no_store_and_no_lookup(stack: CacheStack, engine: Echo) -> None:
    assert reason(stack.chat("Hello there", store=False), Layer.SETTLE) is Reason.NO_STORE
    assert stack.chat("Hello there").trace.served_from == "engine"
    fresh = stack.chat("Hello there", lookup=False)
    assert (reason(fresh), engine.calls) == (Reason.NO_LOOKUP, 3)
    assert stack.chat("Hello there").text == fresh.text, "the fresh answer replaces the old one"
    assert stack.chat("Hello, there").text == fresh.text, "and is found by meaning too"


def test_ttl_is_absolute_and_a_request_can_only_shorten_it(make_stack: MakeStack, clock: Clock) -> None:
    stack = make_stack("default: {retention: {ttl_s: 100}}", engines={"echo": Echo()})
    stack.chat("Hello there")
    stack.chat("Goodbye then", ttl_s=10)
    stack.chat("Good evening", ttl_s=1000)
    clock.now_s += 9.5
    assert stack.chat("Goodbye then").trace.served_from == "exact"
    clock.now_s += 0.5
    assert reason(stack.chat("Goodbye then")) is Reason.EXPIRED
    clock.now_s += 89.5
    assert stack.chat("Hello there").trace.served_from == "exact", "use does not prolong it"
    clock.now_s += 0.5
    assert reason(stack.chat("Hello there")) is Reason.EXPIRED
    assert reason(stack.chat("Good evening")) is Reason.EXPIRED


def test_an_expired_entry_is_not_found_by_meaning(make_stack: MakeStack, clock: Clock) -> None:
    stack = make_stack("default: {retention: {ttl_s: 100}}", engines={"echo": Echo()})
    stack.chat("How do I reset my password?")
    clock.now_s += 100
    assert stack.chat("How can I reset my password?").trace.served_from == "engine"


def test_a_cut_answer_is_replayed_exactly_and_never_by_meaning(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"echo": Echo(finish="length")})
    first = stack.chat("How do I reset my password?")
    assert reason(first, Layer.SETTLE) is Reason.TRUNCATED
    assert stack.chat("How do I reset my password?").finish_reason == "length"
    assert stack.chat("How can I reset my password?").trace.served_from == "engine"


def test_what_is_too_large_or_empty_is_not_kept(make_stack: MakeStack) -> None:
    stack = make_stack("default: {retention: {max_entry_bytes: 20}}", engines={"echo": Echo()})
    assert reason(stack.chat("a question that is long"), Layer.SETTLE) is Reason.TOO_LARGE
    blank = stack.wrap(tenant="t", model="m")(lambda prompt: "  ")
    assert reason(blank.respond("Hello"), Layer.SETTLE) is Reason.EMPTY_ANSWER  # type: ignore[attr-defined]
    assert stack.performer.store.size().num_entries == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Comment réinitialiser mon mot de passe ?", Reason.ENCODER_LANGUAGE),
        ("word " * 400, Reason.BEYOND_WINDOW),
    ],
)
def test_what_is_not_matched_by_meaning_is_still_matched_exactly(stack: CacheStack, text: str, why: Reason) -> None:
    assert reason(stack.chat(text)) is why
    assert stack.chat(text).trace.served_from == "exact"
    assert reason(stack.chat(text + " encore")) is why


def test_french_by_meaning_when_the_policy_vouches_for_the_encoder(make_stack: MakeStack) -> None:
    stack = make_stack("default: {semantic: {languages: [en, fr], reject_below: 0.5}}", engines={"echo": Echo()})
    stack.chat("Comment réinitialiser mon mot de passe ?")
    answer = stack.chat("Comment réinitialiser mon mot de passe?")
    assert reason(answer) not in (Reason.ENCODER_LANGUAGE, Reason.NO_ENTRY)


def test_without_an_encoder_only_exact(make_stack: MakeStack) -> None:
    stack = make_stack(meaning=False, engines={"echo": Echo()})
    assert reason(stack.chat("Hello there")) is Reason.NO_ENCODER
    assert stack.chat("Hello there").trace.served_from == "exact"


# Fallback


def test_retry_answers_and_is_counted(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"echo": Echo(failures=1)})
    answer = stack.chat("Hello there", tenant="t")
    assert answer.text == "answer 2 to Hello there"
    stats = stack.stats().by_tenant["t"]
    assert (stats.fallbacks, stats.fallback_rate) == ({"retried": 1}, 1.0)
    assert (stats.engine_errors, stats.engine_calls) == (1, 1)


def test_the_error_comes_out_when_the_chain_ends(make_stack: MakeStack) -> None:
    engine = Echo(failures=9)
    stack = make_stack("default: {fallback: {num_retries: 2}}", engines={"echo": engine})
    with pytest.raises(EngineError, match=r"^down$"):
        stack.chat("Hello there", tenant="t")
    assert engine.calls == 3
    stats = stack.stats().by_tenant["t"]
    assert (stats.requests, stats.failed, stats.engine_errors, stats.semantic.lookups) == (1, 1, 3, 1)
    assert stack.performer.store.size().num_entries == 0


def test_other_engine(make_stack: MakeStack) -> None:
    policy = "default: {fallback: {engine_error: [other_engine, raise], other_engine: spare}}"
    stack = make_stack(policy, engines={"echo": Echo(failures=1), "spare": Echo("spare")})
    answer = stack.chat("Hello there")
    assert reason(answer, Layer.FALLBACK) is Reason.OTHER_ENGINE
    assert answer.text == "answer 1 to Hello there"


def test_another_engine_that_is_not_there_is_a_clear_error(make_stack: MakeStack) -> None:
    policy = "default: {fallback: {engine_error: [other_engine], other_engine: spare}}"
    stack = make_stack(policy, engines={"echo": Echo(failures=1)})
    with pytest.raises(ConfigError, match="'spare', which the stack was not given; it has: echo"):
        stack.chat("Hello there")


def test_a_stale_answer_within_its_time(make_stack: MakeStack, clock: Clock) -> None:
    policy = "default: {retention: {ttl_s: 100}, fallback: {engine_error: [stale, raise], stale_within_s: 50}}"
    engine = Echo()
    stack = make_stack(policy, engines={"echo": engine})
    first = stack.chat("Hello there", tenant="t")
    clock.now_s += 149
    engine.failures = 2
    answer = stack.chat("Hello there", tenant="t")
    assert (answer.text, answer.trace.served_from, answer.hit_id) == (first.text, "stale", first.hit_id)
    clock.now_s += 1
    with pytest.raises(EngineError):
        stack.chat("Hello there", tenant="t")
    assert stack.stats().by_tenant["t"].fallbacks == {"stale": 1}


def test_a_bad_request_is_not_retried(make_stack: MakeStack) -> None:
    stack = make_stack()
    calls = []

    @stack.wrap(tenant="t", model="m")
    def ask(prompt: str) -> str:
        calls.append(prompt)
        raise RequestError("no")

    with pytest.raises(RequestError):
        ask("Hello there")
    assert calls == ["Hello there"]


# Streams


def test_a_stream_gives_pieces_and_then_the_response(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"echo": Echo(pieces=4)})
    stream = stack.stream("Hello there")
    assert stream.response is None
    chunks = list(stream)
    assert [c.text for c in chunks if c.text] == ["answer", " 1 to ", "Hello ", "there"]
    assert (chunks[-1].finish_reason, chunks[-1].usage) == ("stop", Usage(10, 0, 5))
    assert stream.response is not None
    assert stream.response.text == "".join(c.text for c in chunks)


def test_a_hit_is_streamed_too(stack: CacheStack) -> None:
    text = stack.chat("Tell me all there is to know about lamps").text
    chunks = list(stack.stream("Tell me all there is to know about lamps"))
    assert len(chunks) > 2
    assert "".join(c.text for c in chunks) == text
    assert [c.finish_reason for c in chunks] == [None] * (len(chunks) - 1) + ["stop"]


def test_a_stream_left_early_stores_nothing_and_is_counted(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"echo": Echo(pieces=4)})
    with stack.stream("Hello there", tenant="t") as stream:
        next(stream)
    stats = stack.stats().by_tenant["t"]
    assert (stats.requests, stats.cancelled, stack.performer.store.size().num_entries) == (1, 1, 0)
    assert stack.chat("Hello there", tenant="t").trace.served_from == "engine"


def test_a_stream_that_broke_off_is_not_begun_again(make_stack: MakeStack) -> None:
    engine = Echo(failures=1, pieces=4)
    engine.fails_after_text = True
    stack = make_stack(engines={"echo": engine})
    stream = stack.stream("Hello there")
    assert next(stream).text == "answer"
    with pytest.raises(EngineError, match="broke off"):
        next(stream)
    assert engine.calls == 1


def test_an_answer_nobody_has_seen_is_begun_again(make_stack: MakeStack) -> None:
    engine = Echo(failures=1, pieces=4)
    engine.fails_after_text = True
    answer = make_stack(engines={"echo": engine}).chat("Hello there")
    assert (answer.text, engine.calls) == ("answer 2 to Hello there", 2)
    assert reason(answer, Layer.FALLBACK) is Reason.RETRIED


def test_the_trace_prints_as_a_tree(stack: CacheStack) -> None:
    text = str(stack.chat("Hello there", tenant="acme").trace)
    head, *steps = text.splitlines()
    assert "tenant acme" in head
    assert [line.split()[1:4] for line in steps] == [
        ["policy", "done", "policy_resolved"],
        ["semantic", "miss", "no_entry"],
        ["prefix", "bypass", "not_in_process"],
        ["decode", "done", "generated"],
        ["settle", "done", "stored"],
    ]
    assert steps[-1].startswith("└─")


def test_steps_of_every_kind_are_json(stack: CacheStack) -> None:
    import json

    for question in ("How do I reset my password?", "How can I reset my password?", "How do I reset my router?"):
        trace = stack.chat(question).trace
        assert json.loads(json.dumps(trace.as_dict()))["served_from"] == trace.served_from
        assert all(step.outcome in Outcome for step in trace.steps)
