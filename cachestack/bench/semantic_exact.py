"""What an exact hit costs in this process: the whole answer, the look-up, the read alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from cachestack.asking import build_request
from cachestack.bench.semantic_material import MODEL, TENANT
from cachestack.bench.semantic_report import Exact, Times
from cachestack.decisions import Hit, Miss, Reason, Response
from cachestack.engines.functions import FunctionEngine
from cachestack.entries import Entry
from cachestack.errors import EngineError
from cachestack.keys import contract_of
from cachestack.models.manifest import Report
from cachestack.requests import Request
from cachestack.semantic.layer import Asked, partition_of, semantic_lookup
from cachestack.stack import CacheStack

NUM_KEPT = 500
_NUM_FIRST = 50
_ANSWER = "Open the settings, choose the account, and confirm the change with the code that you are sent. " * 3


def exact_hits(
    stack: CacheStack, texts: Sequence[str], num_hits: int, report: Report, timer: Callable[[], float]
) -> Exact:
    """`num_hits` of each kind, by turns, over questions that are kept on disk; the first few are not counted."""
    texts = texts[:NUM_KEPT]
    total = len(texts) + num_hits
    answers: dict[str, str] = {}
    for number, text in enumerate(texts):
        report("exact hits", number, total)
        new = replace(_request(text), lookup=False)  # a question much like it may be kept already
        made = stack.respond(new, FunctionEngine("bench", MODEL, lambda: _ANSWER))
        if made.hit_id is not None:  # what holds personal data is kept for its user alone, and here there is none
            answers[text] = made.text
    kept = list(answers)
    series: dict[str, list[float]] = {"store": [], "lookup": [], "answer": []}
    num_wrong = 0
    for number in range(-_NUM_FIRST, num_hits):
        if number % 50 == 0:
            report("exact hits", len(kept) + max(0, number), total)
        text = kept[number % len(kept)]
        began = timer()
        response = _answer(stack, text)
        answered = timer()
        found = _look_up(stack, text)
        looked_up = timer()
        entry = None
        if isinstance(found, Hit):
            read = partial(stack.performer.store.find_exact, found.value.partition, found.value.exact)
            looked_up_again = timer()
            entry = read()
            done = timer()
        else:
            looked_up_again = done = looked_up
        if number >= 0:
            series["answer"].append(answered - began)
            series["lookup"].append(looked_up - answered)
            series["store"].append(done - looked_up_again)
        is_right = isinstance(found, Hit) and found.reason is Reason.EXACT and found.value == entry
        num_wrong += not (is_right and response.text == answers[text])
    report("exact hits", total, total)
    return Exact(Times.of(series["store"]), Times.of(series["lookup"]), Times.of(series["answer"]), num_wrong)


def _request(text: str) -> Request:
    return build_request(text, tenant=TENANT, model=MODEL)


def _answer(stack: CacheStack, text: str) -> Response:
    return stack.respond(_request(text), FunctionEngine("bench", MODEL, _not_to_be_called))


def _not_to_be_called() -> str:
    raise EngineError("a question that was kept was not an exact hit")


def _look_up(stack: CacheStack, text: str) -> Hit[Entry] | Miss:
    """The layer's own look-up, its keys included."""
    request = _request(text)
    policy = stack.policies.policy(TENANT)
    asked = Asked(request, contract_of(request, request.model), partition_of(request, policy.semantic))
    lookup = semantic_lookup(asked, policy, frozenset(), time.time())
    try:
        effect = next(lookup)
        while True:
            effect = lookup.send(stack.performer.perform(effect, {}))
    except StopIteration as stop:
        found: Hit[Entry] | Miss = stop.value
        return found
