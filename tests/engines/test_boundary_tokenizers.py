"""Boundaries under every kind of tokenizer and style of template: what is before one is the same whatever follows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachestack.decisions import Bypass, Reason
from cachestack.engines.base import KVRun, Prompt
from cachestack.engines.transformers.boundary import Boundaries, BoundaryFinder
from cachestack.engines.transformers.engine import TransformersEngine
from cachestack.engines.transformers.template import ChatTemplate, Rendered
from cachestack.engines.transformers.tokenised import Tokenised, tokenise
from cachestack.policy import FallbackPolicy, PrefixPolicy
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Message, Request, Sampling
from tests.engines.tokenizers_of_all_kinds import CORPUS, KINDS, SENTENCES, SPECIAL, STYLES, wrapped

FRENCH = ["é", "e\u0301", "Où ça ?", "l'été", "ça va", "hôtel", "déjà", "ﬁn"]
SCRIPTS = ["日本語", "です。", "مرحبا", "كَيف", "한글", "\u1112\u1161\u11ab", "नमस्ते", "ไทย"]
EMOJI = ["😀", "👍🏽", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "🇫🇷", "☎\ufe0f", "1\ufe0f\u20e3"]
SPACING = ["\n", "\n\n", " ", "  ", "   ", "\t", "\r\n", "\u00a0", "\u3000"]
CODE = [
    "def f(x):\n    return x",
    "i",
    "0",
    "12",
    "1234",
    "'s",
    "'",
    "s",
    "--",
    "..",
    "_",
    "</s",
    "re",
    "set",
    " reset",
]
WORDS = [word for sentence in SENTENCES for word in sentence.split(" ")]
EDGES = ["\u0301", "\u0327\u0301", "\u200d", "\U0001f3fd", "\u1161", "\u11a8", "\x00", "\u200b"]
pieces = st.sampled_from([*FRENCH, *SCRIPTS, *EMOJI, *SPACING, *CODE, *WORDS, *EDGES])
texts = st.lists(pieces | st.text(max_size=2), min_size=1, max_size=6).map("".join)
written = texts.filter(lambda text: text.strip() != "")
REAL = ("smollm2", "minilm")


class Case:
    """One tokenizer and template, without a model: what an engine's `prepare` does."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.template = ChatTemplate(tokenizer)
        self.finder = BoundaryFinder(tokenizer, self.template)

    def prepare(self, request: Request) -> tuple[Rendered, Tokenised, Boundaries]:
        rendered = self.template.render(request)
        tokens = tokenise(self.tokenizer, rendered.text, add_special_tokens=rendered.add_special_tokens)
        return rendered, tokens, self.finder.find(request, rendered, tokens)


@pytest.fixture(scope="module")
def case(models_dir: Path, request: pytest.FixtureRequest) -> Callable[[str, str], Case]:
    """By kind of tokenizer and style of template."""

    @functools.cache
    def real(kind: str) -> Any:
        from transformers import AutoTokenizer

        path = request.getfixturevalue("llm_path" if kind == "smollm2" else "encoder_path")
        return AutoTokenizer.from_pretrained(str(path))

    @functools.cache
    def make(kind: str, style: str) -> Case:
        if kind in REAL:
            tokenizer = real(kind)
            tokenizer = type(tokenizer).from_pretrained(tokenizer.name_or_path)
            tokenizer.bos_token = tokenizer.bos_token or tokenizer.cls_token
            tokenizer.eos_token = tokenizer.eos_token or tokenizer.sep_token
            tokenizer.chat_template = STYLES[style]
            return Case(tokenizer)
        return Case(wrapped(KINDS[kind](), style=style, adds_bos=style in ("none", "bos", "chatml")))

    return make


def ask(system: str, *turns: str, **options: Any) -> Request:
    messages = [Message("system", system)]
    messages += [Message(("user", "assistant")[i % 2], text) for i, text in enumerate(turns)]
    return Request(tuple(messages), **options)


def places(found: Boundaries) -> list[int]:
    return [b.position for b in (*found.clean, *([found.nearest_clean] if found.nearest_clean else []))]


def check_what_is_shared(here: Case, system: str, first: str, answer: str, one: str, two: str) -> None:
    """With and without a conversation before the last question: two prompts that differ in it alone."""
    for before in ((), (first, answer)):
        requests = [ask(system, *before, text) for text in (one, two)]
        prepared = [here.prepare(request) for request in requests]
        for rendered, tokens, found in prepared:
            ids = here.tokenizer(rendered.text, add_special_tokens=rendered.add_special_tokens)["input_ids"]
            ends = rendered.add_special_tokens and ids[-1] == here.tokenizer.eos_token_id
            assert list(tokens.ids) == (ids[:-1] if ends else ids)
            if here.tokenizer.bos_token != "<|im_start|>":
                assert tokens.ids.count(here.tokenizer.bos_token_id) <= max(1, len(before))  # Llama 2's: one a turn
            assert all(0 < place < len(ids) for place in places(found))
            assert [b.position for b in found.clean] == sorted({b.position for b in found.clean})
            assert found.clean or found.refusal is Reason.UNCLEAN_BOUNDARY or len(tokens.ids) == 1
        for (_, tokens, found), (_, others, _) in (prepared, prepared[::-1]):
            for place in places(found):
                assert tokens.ids[:place] == others.ids[:place], (place, found)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    kind=st.sampled_from([*KINDS, *REAL]),
    style=st.sampled_from(list(STYLES)),
    drawn=st.tuples(written, written, written, written, written),
)
def test_what_is_before_a_boundary_is_the_same_whatever_follows(
    case: Callable[[str, str], Case], kind: str, style: str, drawn: tuple[str, str, str, str, str]
) -> None:
    check_what_is_shared(case(kind, style), *drawn)


@pytest.mark.full
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", [*KINDS, *REAL])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.tuples(written, written, written, written, written))
def test_what_is_before_a_boundary_is_the_same_in_every_pair_of_tokenizer_and_template(
    case: Callable[[str, str], Case], kind: str, style: str, drawn: tuple[str, str, str, str, str]
) -> None:
    check_what_is_shared(case(kind, style), *drawn)


# A word that others begin with, one that is complete, signs, spaces, digits, an accent, line ends, code.
ENDINGS = (
    "How do I re",
    "the password",
    "desk.",
    "it'",
    "a: ",
    "up  ",
    "no 12",
    "caf",
    "cafe",
    "end.\n",
    "日本",
    "👩",
    "x =\n\t",
    "[",
)


@functools.cache
def everything_that_may_follow(kind: str) -> tuple[str, ...]:
    """Every token of the vocabulary as text, every ending of one, and a few hundred texts and edges."""
    inner = KINDS[kind]()
    spelled = {inner.decode([i]) for i in range(inner.get_vocab_size())} - set(SPECIAL)
    spelled |= {token[i:] for token in spelled for i in range(1, len(token))}
    spelled |= {space + token for token in tuple(spelled) for space in " \n" if len(token) < 3}
    others = [*CORPUS[:20], *FRENCH, *SCRIPTS, *EMOJI, *SPACING, *CODE, *EDGES, "a" * 120, "😀 x", "  \n", " \u0301"]
    return tuple(sorted({text for text in (*spelled, *others) if text.strip() and "\ufffd" not in text}))


@pytest.mark.parametrize(
    ("style", "endings"),
    [
        ("joined", ENDINGS[::5]),
        *(pytest.param(style, ENDINGS, marks=pytest.mark.full) for style in ("joined", "joined_stripped")),
    ],
    ids=["some", "joined", "joined_stripped"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_clean_place_is_as_late_as_the_truth_allows(
    case: Callable[[str, str], Case], kind: str, style: str, endings: Sequence[str]
) -> None:
    """The truth is what the prompts of all continuations share, tried one by one."""
    here = case(kind, style)
    encode = here.tokenizer.backend_tokenizer.encode
    for ending in endings:
        system = f"You are the help desk of ACME. {SENTENCES[0]} {SENTENCES[5]} We are open from 9 to 5. {ending}"
        stable = system.strip() if style == "joined_stripped" else system
        following = everything_that_may_follow(kind)
        rows = {text: encode(stable + (text.strip() if style == "joined_stripped" else text)).ids for text in following}
        shortest = min(rows.values(), key=len)
        shared = next((i for i in range(len(shortest)) if len({row[i] for row in rows.values()}) > 1), len(shortest))
        for text in ("set", " do it?", "?", "5", "\u0301a", *following[:: len(following) // 8]):
            _, tokens, found = here.prepare(ask(system, text))
            certain = min(shared, tokens.num_within(len(stable)), len(tokens.ids) - 1)
            assert places(found) == [certain], (stable, text, found, tokens.ids[certain:])


def test_a_character_that_the_vocabulary_lacks_is_no_special_token(case: Callable[[str, str], Case]) -> None:
    """Its token is one of the special ones by id, and a word may still go on before it."""
    here = case("wordpiece", "joined")
    certain = here.prepare(ask("How do I re", "set?"))[2].nearest_clean
    _, tokens, found = here.prepare(ask("How do I re", "#!"))
    unknown = here.tokenizer.unk_token_id
    assert tokens.ids[4] == unknown
    assert places(found) == [certain.position] == [3]
    (boundary,) = here.prepare(ask("How do I re", "<unk>!"))[2].clean
    assert boundary.position == 3, "the user has written it, the template has not"


def test_an_added_token_that_another_begins_with_may_grow(case: Callable[[str, str], Case]) -> None:
    """Gemma's vocabulary has runs of line ends so."""
    tokenizer = wrapped(KINDS["gemma"](), style="joined")
    tokenizer.add_tokens(["\n\n", "\n\n\n"])
    here = Case(tokenizer)
    assert places(here.prepare(ask("desk.\n\n", "\nHow?"))[2]) == places(here.prepare(ask("desk.\n\n", "How?"))[2])
    (place,) = places(here.prepare(ask("desk.\n\n", "How?"))[2])
    assert tokenizer.decode(here.prepare(ask("desk.\n\n", "How?"))[1].ids[:place]).replace(" ", "") == "desk."


@pytest.mark.parametrize(("trim", "ending"), [("", "."), (" | trim", ".\n\n")])
def test_line_ends_before_a_text_that_the_template_strips_are_certain(trim: str, ending: str) -> None:
    """Where it does not, a text that begins with another line end makes one token of three."""
    tokenizer = wrapped(KINDS["llama_3"](), style="joined")
    tokenizer.chat_template = (
        "{% if messages[-1]['role'] != 'user' %}{{ raise_exception('no user') }}{% endif %}"
        "{{ messages[0]['content'] + '\n\n' + (messages[1]['content']" + trim + ") }}"
    )
    here = Case(tokenizer)
    for question in ("How?", "\nHow?", "  How?"):
        _, tokens, found = here.prepare(ask("You are a help desk.", question))
        (place,) = places(found)
        assert tokenizer.decode(tokens.ids[:place]) == f"You are a help desk{ending}"


class Python:
    """A tokenizer that is written in Python: it does not say where its tokens stand."""

    is_fast = False
    backend_tokenizer = None

    def __init__(self, fast: Any) -> None:
        self._fast = fast

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        return {"input_ids": self._fast(text, **options)["input_ids"]}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fast, name)


@pytest.mark.parametrize("style", ["none", "chatml", "no_system", "turns", "joined"])
@pytest.mark.parametrize("kind", ["byte_level", "llama_2", "wordpiece"])
def test_a_tokenizer_that_does_not_say_where_its_tokens_stand(
    case: Callable[[str, str], Case], kind: str, style: str
) -> None:
    fast = case(kind, style)
    slow = Case(Python(fast.tokenizer))
    drawn = ("You are a help desk.", "Où est ma carte ?", "Ici.\n", "How do I re", "\u0301 2")
    check_what_is_shared(slow, *drawn)
    for question in drawn[3:]:
        request = ask(*drawn[:3], question)
        assert slow.prepare(request)[1].ids == fast.prepare(request)[1].ids
        for ours, theirs in zip(places(slow.prepare(request)[2]), places(fast.prepare(request)[2]), strict=True):
            assert abs(theirs - ours) <= 2, "its vocabulary is not looked at"


@pytest.mark.parametrize("kind", KINDS)
def test_bos_is_there_once_and_eos_is_not(case: Callable[[str, str], Case], kind: str) -> None:
    """Written by the template, added by the tokenizer, or both of them would."""
    for style, expected in (("bos", 1), ("no_system", 1), ("none", 1), ("chatml", 0), ("joined", 0)):
        here = case(kind, style)
        ids = here.prepare(ask("You are a help desk.", "Où est ma carte ?"))[1].ids
        assert ids.count(here.tokenizer.bos_token_id) == expected, style
        assert here.tokenizer.eos_token_id not in ids


@pytest.mark.parametrize(
    ("style", "num_tokenised"),
    [("chatml", 1), ("bos", 1), ("no_system", 1), ("none", 2), ("llama_2", 2), ("joined", 2)],
)
def test_a_prompt_is_tokenised_once(
    case: Callable[[str, str], Case], monkeypatch: pytest.MonkeyPatch, style: str, num_tokenised: int
) -> None:
    """And the last words before an end that no special token makes certain once more, the first time they are seen."""
    here = Case(case("byte_level", style).tokenizer)  # that has seen nothing yet
    system = "You are the help desk of ACME, and answer briefly. " * 100 + style
    lengths: list[int] = []
    call = type(here.tokenizer).__call__

    def counted(self: Any, text: str, **options: Any) -> Any:
        lengths.append(len(text))
        return call(self, text, **options)

    monkeypatch.setattr(type(here.tokenizer), "__call__", counted)
    long_style = style == "no_system"  # merged with the user's message there: the end is plain text
    here.prepare(ask(system, "How do I?"))
    assert len(lengths) == num_tokenised + long_style
    assert sum(length > 600 for length in lengths) == 1
    lengths.clear()
    here.prepare(ask(system, "Where is it?"))
    assert len(lengths) == 1


@pytest.mark.parametrize("kind", ["byte_level", "llama_2", "unigram", "wordpiece"])
@pytest.mark.parametrize("style", ["none", "turns", "joined"])
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(system=written, one=written, two=written)
def test_reuse_up_to_a_boundary_gives_the_logits_of_a_whole_prompt(
    case: Callable[[str, str], Case],
    make_model: Callable[..., Any],
    drain: Callable[..., Any],
    kind: str,
    style: str,
    system: str,
    one: str,
    two: str,
) -> None:
    import torch

    here = case(kind, style)
    model = make_model("llama", vocab_size=1200, max_position_embeddings=2048)
    engine = TransformersEngine.from_parts(model, here.tokenizer)
    first, second = (
        ask(f"You are a help desk. {system}", text, sampling=Sampling(max_new_tokens=1)) for text in (one, two)
    )
    prompt, other = engine.prepare(first), engine.prepare(second)
    boundary = (prompt.boundaries or (prompt.nearest_clean,))[0]
    assert boundary is not None
    place = boundary.position
    runs: Sequence[KVRun] = drain(engine, first, publish_at=[place]).computed.runs
    assert sum(run.num_tokens for run in runs) == place
    seen: list[Any] = []
    handle = model.register_forward_hook(lambda module, inputs, output: seen.append(output.logits[0, -1]))
    try:
        drain(engine, second, past=runs)
        with torch.no_grad():
            model(torch.tensor([other.ids]))
    finally:
        handle.remove()
    assert torch.allclose(seen[0], seen[-1], atol=1e-3)
    assert seen[0].argmax() == seen[-1].argmax()


def test_an_unclean_boundary_is_refused_with_the_nearest_place_and_the_whole_prompt_is_computed(
    case: Callable[[str, str], Case],
) -> None:
    layer = PrefixLayer(BlockPool(max_bytes=1 << 20), b"secret")
    for kind in KINDS:
        if kind.startswith("unigram"):
            continue  # "reset" is no piece of theirs
        _, tokens, found = case(kind, "joined").prepare(ask("You are a help desk. How do I re", "set my password?"))
        assert found.clean == ()
        assert found.refusal is Reason.UNCLEAN_BOUNDARY, kind
        assert found.nearest_clean is not None
        prompt = Prompt(tokens.ids, found.clean, found.refusal, found.nearest_clean)
        plans = [
            layer.lookup(
                prompt,
                fingerprint="f",
                model="m",
                tenant="t",
                policy=PrefixPolicy(min_tokens=1),
                fallback=FallbackPolicy(unclean_boundary=way),
            )
            for way in ("full_prompt", "nearest_clean")
        ]
        assert isinstance(plans[0].lookup, Bypass)
        assert plans[0].lookup.reason is Reason.UNCLEAN_BOUNDARY
        assert plans[0].lookup.detail["nearest_clean"] == found.nearest_clean.position
        assert not plans[0].past
        assert not plans[0].publish_at
        assert plans[1].publish_at[0] == found.nearest_clean.position
