"""The layer with the embedded model: a long conversation, aborts, tenants, budgets, many threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cachestack.decisions import Bypass, Hit, Reason
from cachestack.engines.base import Computed, TokenEngine
from cachestack.policy import FallbackPolicy, PrefixPolicy
from cachestack.prefix.layer import PrefixLayer, PrefixPlan
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Message, Request, Sampling, as_messages

SYSTEM = "You are the help desk of ACME. Answer in one short sentence, kindly, without asking back."
MIB = 1024 * 1024


class Chat:
    """What the pipeline does with the prefix layer and an engine, and no more."""

    def __init__(self, engine: TokenEngine, max_bytes: int = 256 * MIB) -> None:
        self.engine = engine
        self.layer = PrefixLayer(BlockPool(max_bytes), b"secret")

    def plan(self, request: Request, **policy: Any) -> tuple[Any, PrefixPlan]:
        prompt = self.engine.prepare(request)
        plan = self.layer.lookup(
            prompt,
            fingerprint=self.engine.fingerprint,
            model=self.engine.model,
            tenant=request.tenant,
            policy=PrefixPolicy(**policy),
            fallback=FallbackPolicy(),
            unsupported=self.engine.unsupported_cache,
        )
        return prompt, plan

    def ask(self, request: Request, **policy: Any) -> tuple[PrefixPlan, Computed]:
        prompt, plan = self.plan(request, **policy)
        try:
            stream = self.engine.stream_tokens(request, prompt, plan.past, plan.publish_at)
            while True:
                try:
                    next(stream)
                except StopIteration as end:
                    computed: Computed = end.value
                    break
            self.layer.publish(plan, prompt, computed)
        finally:
            plan.release()
        return plan, computed


def say(question: str, num_tokens: int = 4, **options: Any) -> Request:
    return Request(as_messages(question, SYSTEM), sampling=Sampling(max_new_tokens=num_tokens), **options)


def test_thirty_turns_reuse_their_own_history(local_engine: TokenEngine) -> None:
    """At every turn all that was computed before is reused, the last answer included."""
    chat = Chat(local_engine)
    messages = [Message("system", SYSTEM)]
    sampling = Sampling(max_new_tokens=4)
    before: tuple[int, ...] = ()
    for turn in range(30):
        emoji = "😀👍🏽🎉"[turn % 3]
        messages.append(Message("user", f"Tell me fact {turn} about été in 日本 {emoji}"))
        plan, computed = chat.ask(Request(tuple(messages), sampling=sampling))
        usage = computed.generation.usage
        if turn == 0:
            assert plan.lookup.reason is Reason.PREFIX_COLD
        else:
            # As far as the tokens agree: an answer cut off by its length may tokenise otherwise at its very end.
            assert len(before) - 4 <= usage.cached_tokens <= len(before)
            assert computed.ids[: usage.cached_tokens] == before[: usage.cached_tokens]
            assert usage.prompt_tokens - usage.cached_tokens < 45
        before = computed.ids
        messages.append(Message("assistant", computed.generation.text))
        chat.layer.pool.check_integrity()
    assert usage.prompt_tokens > 700
    fresh_plan, fresh = Chat(local_engine).ask(Request(tuple(messages[:-1]), sampling=sampling))
    assert fresh_plan.past == ()
    assert fresh.generation.text == messages[-1].content


def test_a_warm_answer_is_the_cold_one(local_engine: TokenEngine) -> None:
    chat = Chat(local_engine)
    _, cold = chat.ask(say("How do I reset my password?", 10))
    plan, warm = chat.ask(say("How do I reset my password?", 10))
    assert isinstance(plan.lookup, Hit)
    assert warm.generation.text == cold.generation.text
    assert warm.ids == cold.ids
    assert warm.generation.usage.cached_tokens == plan.detail["boundary"] > 0


def test_an_aborted_stream_publishes_nothing(local_engine: TokenEngine) -> None:
    chat = Chat(local_engine)
    request = say("How do I reset my password?", 10)
    prompt, plan = chat.plan(request)
    stream = local_engine.stream_tokens(request, prompt, plan.past, plan.publish_at)
    next(stream)
    stream.close()
    plan.release()
    assert chat.layer.sizes().num_segments == 0
    assert chat.plan(request)[1].lookup.reason is Reason.PREFIX_COLD


def test_another_tenant_s_prefix_is_not_reused(local_engine: TokenEngine) -> None:
    chat = Chat(local_engine)
    chat.ask(say("Hello?", 1, tenant="one"))
    plan, computed = chat.ask(say("Hello?", 1, tenant="two"))
    assert plan.lookup.reason is Reason.PREFIX_COLD
    assert computed.generation.usage.cached_tokens == 0
    assert {g.tenant for g in chat.layer.sizes().groups} == {"one", "two"}


def test_few_shot_messages_are_a_prefix_where_they_are_marked(local_engine: TokenEngine) -> None:
    shots = (
        Message("system", "Name the topic of the message."),
        Message("user", "My card was declined."),
        Message("assistant", "billing"),
        Message("user", "The app crashes."),
        Message("assistant", "technical"),
    )

    def item(text: str) -> Request:
        return Request((*shots, Message("user", text)), stable_messages=5, sampling=Sampling(max_new_tokens=2))

    chat = Chat(local_engine)
    first, _ = chat.ask(item("I cannot log in."))
    assert first.detail["kind"] == "examples"
    second, computed = chat.ask(item("\n\nWhere is my refund? 😀"))
    assert second.lookup.reason is Reason.PREFIX_FULL
    assert computed.generation.usage.cached_tokens == first.detail["boundary"]


def test_memory_stays_within_the_budget_whatever_is_asked(local_engine: TokenEngine) -> None:
    chat = Chat(local_engine, max_bytes=4 * MIB)
    for n in range(4):
        request = Request(as_messages("Hi", f"{n} {SYSTEM}"), sampling=Sampling(max_new_tokens=1))
        chat.ask(request)
        chat.layer.pool.check_integrity()
    sizes = chat.layer.sizes()
    assert 0 < sizes.num_bytes <= 4 * MIB
    assert sizes.num_evicted > 0
    # 30 layers, keys and values, 3 heads of 64, float32: 46080 bytes a token, and not one byte more is held
    assert sizes.num_bytes == sizes.num_tokens * 46080
    (group,) = sizes.groups
    assert (group.model, group.dtype) == (local_engine.model, "float32")


def test_threads_share_one_layer_and_one_model(local_engine: TokenEngine) -> None:
    questions = ["How do I reset my password?", "Where is my parcel?", "Can I pay by card?"]
    alone = {q: Chat(local_engine).ask(say(q, 5))[1].generation.text for q in questions}
    chat = Chat(local_engine)
    start = threading.Barrier(len(questions))
    got: dict[str, str] = {}

    def work(question: str) -> None:
        start.wait()
        got[question] = chat.ask(say(question, 5))[1].generation.text

    threads = [threading.Thread(target=work, args=(q,)) for q in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chat.layer.pool.check_integrity()
    assert got == alone
    assert chat.layer.sizes().num_leased == 0
    plan, _ = chat.ask(say("And now?", 1))
    assert plan.lookup.reason is Reason.PREFIX_FULL


def test_a_sliding_window_bypasses_the_layer_and_says_why() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    from cachestack.engines.transformers.engine import TransformersEngine

    torch.manual_seed(0)
    words = {w: i for i, w in enumerate(["<unk>", "</s>", "hi", "you", "System", "User", "Assistant", ":"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", unk_token="<unk>")
    config = transformers.MistralConfig(
        vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=4, max_position_embeddings=128,
    )  # fmt: skip
    engine = TransformersEngine.from_parts(transformers.MistralForCausalLM(config), tokenizer)
    chat = Chat(engine)
    plan, computed = chat.ask(say("hi you", 3))
    assert isinstance(plan.lookup, Bypass)
    assert plan.lookup.reason is Reason.UNSUPPORTED_CACHE
    assert "DynamicSlidingWindowLayer" in plan.detail["why"]
    assert computed.runs == ()
    assert chat.layer.sizes().num_segments == 0
