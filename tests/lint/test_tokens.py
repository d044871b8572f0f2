"""A log is tokenised part by part, and counted as a model would count it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachestack.engines.transformers.tokens import NUM_CHECKED
from cachestack.errors import ModelNotFound
from cachestack.lint import lint, open_space
from cachestack.requests import Message
from tests.lint.conftest import RULES, chats

pieces = st.lists(
    st.sampled_from(
        ["Été 🙂", "<|im_end|>", "<|im_start|>", " ", "\n\n", "def f():\n\treturn 1", "日本", "a", "e\u0301"]
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces)
def test_parts_give_the_tokens_of_the_whole(space, parts) -> None:
    text = "".join(parts)
    tokens = space.encode(text, is_rendered=True)
    whole = space._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert tokens.ids.tolist() == whole["input_ids"]
    assert tokens.starts.tolist() == [start for start, _ in whole["offset_mapping"]]


def test_a_tokenizer_whose_parts_differ_is_given_whole_texts(llm_path) -> None:
    space = open_space(str(llm_path))
    honest = space._by_parts
    space._by_parts = lambda text: tuple(part[1:] for part in honest(text))
    text = space.render((Message("user", "Hello there"),))
    for _ in range(NUM_CHECKED + 2):
        assert len(space.encode(text, is_rendered=True).ids) == len(honest(text)[0])


def test_prompt_tokens_are_those_of_the_engine(space, local_engine) -> None:
    from cachestack.asking import build_request

    row = chats(RULES)[0]
    prompt = local_engine.prepare(build_request(row["messages"]))
    assert lint([row], model=space).num_tokens == len(prompt.ids)


def test_without_a_tokenizer_it_fails_and_names_both_ways() -> None:
    with pytest.raises(ModelNotFound, match=r"no-such-folder.*characters"):
        lint(["Hello"], model="./no-such-folder")


def test_characters_are_counted_where_that_was_asked_for() -> None:
    report = lint([f"Today is {day} March. {RULES}" for day in (3, 4, 5)], characters=True)
    assert (report.unit, report.ms_per_token) == ("characters", None)
    assert report.num_tokens == 3 * len(f"Today is 3 March. {RULES}")
    (finding,) = report.findings
    assert (finding.kind, finding.ms_lost) == ("date", None)
    assert finding.tokens_lost == 2 * len(f". {RULES}".lstrip(".")) + 2
    assert finding.examples[0].position == len("Today is ")
