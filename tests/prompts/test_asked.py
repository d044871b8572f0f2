"""A structured prompt through the stack: boundary after the examples, answers found and removed by any version."""

from __future__ import annotations

import asyncio
import copy

import pytest

from cachestack.asking import build_request
from cachestack.decisions import Layer, Reason
from cachestack.engines.functions import FunctionEngine
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.keys import contract_of
from cachestack.prompts import Examples, Part, StructuredPrompt
from tests.core.conftest import clock, encoder, make_stack  # noqa: F401  (fixtures)

PROMPT = StructuredPrompt(
    system_instructions=Part("You are the help desk of ACME. Answer in one short sentence.", "instructions-1"),
    cached_context=[Part("We are open from nine to five.", "handbook-3"), Part("Lunch is free.", "menu-1")],
    examples=Examples((("Where are you?", "In Paris."), ("Who are you?", "The help desk of ACME.")), "shots-1"),
    user_query="When are you open?",
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture
def stack(make_stack):  # noqa: F811
    return make_stack(engines={"echo": FunctionEngine("echo", "m", lambda: "An answer.")}, meaning=False)


@pytest.mark.parametrize("template", [None, NO_SYSTEM], ids=["with a system role", "without"])
def test_the_boundary_ends_after_the_examples(local_engine, template) -> None:
    loaded = local_engine.loaded
    tokenizer = copy.deepcopy(loaded.tokenizer)
    tokenizer.chat_template = template or tokenizer.chat_template
    found = TransformersEngine.from_parts(loaded.model, tokenizer).prepare(build_request(PROMPT))
    assert found.refusal is None
    last = max((b for b in found.boundaries if b.kind == "examples"), key=lambda b: b.position)
    stable, rest = tokenizer.decode(found.ids[: last.position]), tokenizer.decode(found.ids[last.position :])
    assert "Lunch is free." in stable
    assert stable.rstrip().endswith("The help desk of ACME.<|im_end|>")
    assert "When are you open?" in rest


def test_the_second_query_reuses_all_that_is_stable(make_stack, local_engine) -> None:  # noqa: F811
    stack = make_stack("default: {decode: {max_new_tokens: 2}}", engines={"local": local_engine}, meaning=False)
    first = stack.chat(PROMPT, tenant="acme", store=False)
    second = stack.chat(PROMPT.with_query("Is lunch free?"), tenant="acme", store=False)
    steps = [r.trace.step(Layer.PREFIX) for r in (first, second)]
    assert [s.reason for s in steps] == [Reason.PREFIX_COLD, Reason.PREFIX_FULL]
    assert steps[1].detail["matched_tokens"] == steps[0].detail["boundary"] == second.usage.cached_tokens


def test_a_template_without_a_query_is_warmed(make_stack, local_engine) -> None:  # noqa: F811
    policy = "default: {decode: {max_new_tokens: 2}, prefix: {keep_conversations: false}}"
    stack = make_stack(policy, engines={"local": local_engine}, meaning=False)
    template = StructuredPrompt(PROMPT.system_instructions, PROMPT.cached_context, PROMPT.examples)
    warmed = stack.warm(template, tenant="template")
    asked = stack.chat(PROMPT, tenant="template", store=False)
    assert asked.trace.step(Layer.PREFIX).reason is Reason.PREFIX_FULL
    assert warmed.num_tokens == asked.usage.cached_tokens > 0


@pytest.mark.parametrize("version", ["instructions-1", "handbook-3", "menu-1", "shots-1", "release-9"])
def test_any_version_removes_the_answer(stack, version) -> None:
    stack.chat(PROMPT, tenant="acme", version="release-9")
    other = stack.chat("When?", tenant="acme", version="other")
    assert stack.explain(PROMPT, tenant="acme", version="release-9").would == "exact"
    assert stack.invalidate(version="handbook-4") == 0
    assert stack.invalidate(version=version, tenant="elsewhere") == 0
    assert stack.invalidate(version=version) == 1
    assert stack.explain(PROMPT, tenant="acme", version="release-9").would == "engine"
    assert stack.explain("When?", tenant="acme", version="other").would == "exact", other.hit_id


def test_each_part_s_version_is_in_the_contract() -> None:
    def contract(prompt: StructuredPrompt) -> str:
        return contract_of(build_request(prompt), "m").digest

    context = PROMPT.cached_context
    others = [
        StructuredPrompt(Part(PROMPT.system_instructions.text, "2"), context, PROMPT.examples, "When are you open?"),
        StructuredPrompt(PROMPT.system_instructions.text, context, PROMPT.examples, "When are you open?"),
        StructuredPrompt(
            PROMPT.system_instructions, [context[0], Part(context[1].text, "menu-2")], PROMPT.examples, "When?"
        ),
        StructuredPrompt(
            PROMPT.system_instructions,
            [Part(context[0].text, "menu-1"), Part(context[1].text, "handbook-3")],
            PROMPT.examples,
            "When?",
        ),
        StructuredPrompt(PROMPT.system_instructions, context, Examples(PROMPT.examples.pairs, "shots-2"), "When?"),
        PROMPT.with_query(Part("When are you open?", "q-1")),
    ]
    assert len({contract(p) for p in [PROMPT, *others]}) == len(others) + 1
    assert contract(PROMPT.with_query("Something else")) == contract(PROMPT)


def test_stream_compare_and_async_take_it(stack) -> None:
    with stack.stream(PROMPT, tenant="acme") as stream:
        assert "".join(chunk.text for chunk in stream) == "An answer."
    compared = stack.compare(PROMPT, StructuredPrompt(user_query="When are you open?"), tenant="acme")
    assert not compared.serves
    assert "part_versions" in compared.differs
    assert stack.compare(PROMPT, PROMPT, tenant="acme").serves

    @stack.wrap(tenant="acme", model="m")
    async def ask(prompt: object) -> str:
        return "Later."

    assert asyncio.run(ask(PROMPT)) == "Later."
    assert asyncio.run(ask.respond(PROMPT)).trace.served_from == "exact"
