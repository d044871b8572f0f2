"""Decoding with the embedded model: warm equals cold, streams, stop strings, seeds, cancellation, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest
import torch

from cachestack.engines.base import Computed, KVRun, Prompt, TokenStream
from cachestack.engines.transformers.adapter import forward
from cachestack.engines.transformers.decode import Job, generate
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.kv import KVTensors, cut, fork, run_of
from cachestack.requests import Request, Sampling, as_messages

Drain = Callable[..., Any]
SYSTEM = "You are the help desk of ACME. Answer in one short sentence, kindly, without asking back. " * 2


def ask(question: str, num_tokens: int = 10, **sampling: Any) -> Request:
    return Request(as_messages(question, SYSTEM), sampling=Sampling(max_new_tokens=num_tokens, **sampling))


REQUEST = ask("How do I reset my password?")


@pytest.fixture(scope="module")
def prompt(local_engine: TransformersEngine) -> Prompt:
    return local_engine.prepare(REQUEST)


@pytest.fixture(scope="module")
def cold(local_engine: TransformersEngine, prompt: Prompt, drain: Drain) -> Any:
    (boundary,) = prompt.boundaries
    return drain(local_engine, REQUEST, prompt, (), (boundary.position, len(prompt.ids)))


def tensors(payload: KVTensors) -> list[torch.Tensor]:
    return [t for pair in payload.layers for t in pair]


def test_logits_of_a_warm_run_equal_those_of_a_cold_one_bit_for_bit(
    local_engine: TransformersEngine, prompt: Prompt
) -> None:
    model = local_engine.loaded.model
    ids, at = torch.tensor([prompt.ids]), prompt.boundaries[0].position
    cache = fork((), model.config)
    forward(model, input_ids=ids[:, :at], cache=cache)
    kept = run_of(cut(cache, 0, at), 0)
    cold_logits = forward(model, input_ids=ids[:, at:], cache=cache, keep_logits=0)
    for _ in range(2):
        warm = forward(model, input_ids=ids[:, at:], cache=fork((kept,), model.config), keep_logits=0)
        assert torch.equal(warm, cold_logits)
    whole = forward(model, input_ids=ids)
    assert torch.allclose(whole[0, -1], cold_logits[0, -1], atol=1e-3)
    assert int(whole[0, -1].argmax()) == int(cold_logits[0, -1].argmax())


def test_a_warm_stream_equals_a_cold_one_to_the_last_key_and_value(
    local_engine: TransformersEngine, prompt: Prompt, drain: Drain, cold: Any
) -> None:
    prefix, rest = cold.computed.runs
    before = [t.clone() for t in tensors(prefix.payload)]
    warm = drain(local_engine, REQUEST, prompt, (prefix,), (len(prompt.ids),))
    assert warm.text == cold.text
    assert warm.computed.ids == cold.computed.ids
    (again,) = warm.computed.runs
    assert (again.start, again.num_tokens) == (rest.start, rest.num_tokens)
    assert all(torch.equal(a, b) for a, b in zip(tensors(again.payload), tensors(rest.payload), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(tensors(prefix.payload), before, strict=True))
    usage = warm.computed.generation.usage
    assert usage.cached_tokens == prompt.boundaries[0].position
    assert usage.prompt_tokens == len(prompt.ids)


def test_splitting_does_not_change_the_answer(
    local_engine: TransformersEngine, prompt: Prompt, drain: Drain, cold: Any
) -> None:
    plain = drain(local_engine, REQUEST, prompt)
    assert plain.text == cold.text
    assert plain.computed.runs == ()
    assert plain.computed.generation.usage.cached_tokens == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_gives_the_same_answer_warm_and_cold(
    local_engine: TransformersEngine, drain: Drain, cold: Any, seed: int
) -> None:
    request = ask("How do I reset my password?", 10, temperature=1.0, top_p=0.95, seed=seed)
    prompt = local_engine.prepare(request)
    at = prompt.boundaries[0].position
    runs = cold.computed.runs[:1]
    texts = {drain(local_engine, request, prompt, past, split).text for past, split in (((), (at,)), (runs, ()))}
    assert len(texts) == 1


def test_other_seeds_give_other_answers_and_none_draws_anew(local_engine: TransformersEngine, drain: Drain) -> None:
    seeds = [1, 1, 2, None, None]
    texts = [drain(local_engine, ask("Tell me a story.", 5, temperature=1.5, seed=seed)).text for seed in seeds]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 4


def test_a_stream_comes_in_pieces_that_make_the_text(cold: Any) -> None:
    generation = cold.computed.generation
    assert len(cold.pieces) > 5
    assert all(cold.pieces)
    assert cold.text == generation.text
    assert generation.finish_reason == "length"
    assert generation.usage.completion_tokens == 10
    assert 0 < cold.computed.prefill_s <= generation.ttft_s
    assert generation.decode_s > 0


def test_the_time_a_reader_takes_is_not_decoding_time(local_engine: TransformersEngine, prompt: Prompt) -> None:
    now = [0.0]
    engine = TransformersEngine.from_parts(
        local_engine.loaded.model, local_engine.loaded.tokenizer, clock=lambda: now[0]
    )
    computed: list[Computed] = []

    def read() -> Generator[str, None, None]:
        computed.append((yield from engine.stream_tokens(ask("Hi", 3), prompt)))

    for _ in read():
        now[0] += 100.0
    assert now[0] > 0
    assert computed[0].generation.decode_s == 0.0


def test_an_answer_ends_at_the_end_token(local_engine: TransformersEngine, drain: Drain) -> None:
    request = Request(as_messages("Say only: yes", "Answer with one word."), sampling=Sampling(max_new_tokens=60))
    streamed = drain(local_engine, request)
    generation = streamed.computed.generation
    assert generation.finish_reason == "stop"
    assert "<|im_end|>" not in streamed.text
    assert generation.usage.completion_tokens < 60
    # The end token is counted as generated, but was never computed on.
    assert len(streamed.computed.ids) == generation.usage.prompt_tokens + generation.usage.completion_tokens - 1


def test_a_stop_string_across_tokens_ends_the_answer_and_does_not_show(
    local_engine: TransformersEngine, prompt: Prompt, drain: Drain, cold: Any
) -> None:
    text = cold.text
    stop = text[10:18]  # begins and ends within words
    assert sum(stop in piece for piece in cold.pieces) == 0
    request = replace(REQUEST, sampling=replace(REQUEST.sampling, stop=(stop, "never there")))
    streamed = drain(local_engine, request, prompt)
    assert streamed.text == text[: text.index(stop)]
    generation = streamed.computed.generation
    assert generation.text == streamed.text
    assert generation.finish_reason == "stop"
    assert generation.usage.completion_tokens < 10


def test_the_beginning_of_a_stop_string_that_never_comes_is_shown_in_the_end(
    local_engine: TransformersEngine, prompt: Prompt, drain: Drain, cold: Any
) -> None:
    request = replace(REQUEST, sampling=replace(REQUEST.sampling, stop=(cold.text[-4:] + "\u2603",)))
    streamed = drain(local_engine, request, prompt)
    assert streamed.text == cold.text
    assert streamed.computed.generation.finish_reason == "length"


def test_emoji_and_other_scripts_stream_as_whole_characters(local_engine: TransformersEngine, drain: Drain) -> None:
    request = Request(
        as_messages("Repeat exactly: 日本語 😀👍🏽 été 中文", "Repeat the user's text."),
        sampling=Sampling(max_new_tokens=24),
    )
    streamed = drain(local_engine, request)
    assert not any("\ufffd" in piece for piece in streamed.pieces)
    assert any(ord(c) > 0x2000 for c in streamed.text)


def test_closing_a_stream_stops_the_work_at_the_next_token(
    local_engine: TransformersEngine, prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        passes.append(1)
        return forward(*args, **kwargs)

    monkeypatch.setattr("cachestack.engines.transformers.decode.forward", counted)
    stream = local_engine.stream_tokens(REQUEST, prompt, (), (prompt.boundaries[0].position, len(prompt.ids)))
    next(stream)
    next(stream)
    num_passes = len(passes)
    stream.close()
    assert len(passes) == num_passes
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value is None


def test_two_interleaved_streams_know_nothing_of_each_other(
    local_engine: TransformersEngine, drain: Drain, cold: Any
) -> None:
    run: KVRun = cold.computed.runs[0]
    questions = ("How do I reset my password?", "Where is my parcel?")
    alone = [drain(local_engine, ask(q, 6), None, (run,)).text for q in questions]
    streams = [local_engine.stream_tokens(ask(q, 6), local_engine.prepare(ask(q)), (run,), ()) for q in questions]
    texts = ["", ""]
    running = {0, 1}
    while running:
        for i in tuple(running):
            try:
                texts[i] += next(streams[i])
            except StopIteration:
                running.discard(i)
    assert texts == alone
    assert texts[0] != texts[1]


def test_threads_on_one_model_and_one_prefix_are_right(
    local_engine: TransformersEngine, drain: Drain, cold: Any
) -> None:
    run: KVRun = cold.computed.runs[0]
    questions = ("How do I reset my password?", "Where is my parcel?", "Can I pay by card?")
    alone = {q: drain(local_engine, ask(q, 6), None, (run,)).text for q in questions}
    start = threading.Barrier(len(questions))
    got: dict[str, str] = {}

    def work(question: str) -> None:
        start.wait()
        got[question] = drain(local_engine, ask(question, 6), None, (run,)).text

    threads = [threading.Thread(target=work, args=(q,)) for q in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == alone


def test_a_plain_prompt_ends_where_the_next_turn_would_begin(
    make_engine: Any, make_byte_tokenizer: Any, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Job] = []

    def noted(loaded: Any, job: Job, **options: Any) -> TokenStream:
        jobs.append(job)
        return generate(loaded, job, **options)

    monkeypatch.setattr("cachestack.engines.transformers.engine.generate", noted)
    request = Request(as_messages("Hi"), sampling=Sampling(max_new_tokens=1, stop=("x",)))
    drain(make_engine(tokenizer=make_byte_tokenizer()), request)
    drain(make_engine(), request)
    assert [job.stops for job in jobs] == [("x", "\nUser:"), ("x",)]
