"""`/v1/classify` and `/v1/score`, our own: which label fits a text, by what the model would say first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from cachestack.access import Principal
from cachestack.bodies.offered import Models
from cachestack.bodies.reading import Fields
from cachestack.classified import Label
from cachestack.errors import RequestError
from cachestack.gateway.jsonbody import JsonBody
from cachestack.gateway.requesting import Exchange
from cachestack.gateway.stack_port import StackPort

_MAX_TEXTS = 2048
_MAX_LABELS = 256


class Labels:
    """`many`: texts in, a list of results out; else one text, one result."""

    def __init__(self, port: StackPort, models: Models, body: JsonBody, *, many: bool) -> None:
        self._port = port
        self._models = models
        self._body = body
        self._many = many

    async def __call__(self, exchange: Exchange) -> None:
        async with self._body.read(exchange) as (principal, body):
            work = (self._classify if self._many else self._score)(Fields(body), principal)
            loop = asyncio.get_running_loop()
            async with exchange.while_there():
                await exchange.answer(await loop.run_in_executor(self._port.threads, work))

    def _classify(self, fields: Fields, principal: Principal) -> Callable[[], Any]:
        texts = _texts(fields, "texts", _MAX_TEXTS)
        options = self._options(fields, principal)
        model = self._models.engines[0].model

        def work() -> dict[str, Any]:
            report = self._port.stack.classify(texts, **options)
            summary = report.summary
            usage = {
                "prompt_tokens": summary.prompt_tokens,
                "completion_tokens": 0,
                "total_tokens": summary.prompt_tokens,
                "prompt_tokens_details": {"cached_tokens": summary.reused_tokens},
            }
            rows = [{"index": i, **_row(label)} for i, label in enumerate(report)]
            return {"object": "list", "model": model, "data": rows, "usage": usage}

        return work

    def _score(self, fields: Fields, principal: Principal) -> Callable[[], Any]:
        text = fields.text("text")
        if text is None:
            raise RequestError("text is missing: give the text that is to be labelled")
        options = self._options(fields, principal)
        model = self._models.engines[0].model
        return lambda: {"object": "label", "model": model, **_row(self._port.stack.score(text, **options))}

    def _options(self, fields: Fields, principal: Principal) -> dict[str, Any]:
        """What both take. `model` may be left out: it is the first engine's, the only one that scores."""
        model = fields.text("model")
        if model is not None:
            self._models.find(model)
        if not self._models.engines[0].in_process:
            raise RequestError("labels need the in-process engine, and the first engine here is remote")
        options: dict[str, Any] = {
            "labels": _texts(fields, "labels", _MAX_LABELS),
            "prompt": fields.text("prompt") or "",
            "template": fields.text("template") or "{text}",
            "scores": fields.text("scores") or "sum",
            "min_probability": fields.number("min_probability") or 0.0,
            "min_mass": fields.number("min_mass") or 0.0,
            "tenant": principal.tenant,
            "user": principal.user,
        }
        if fields.rest:
            raise RequestError(f"{', '.join(sorted(fields.rest))} is not known; leave it out")
        return options


def _texts(fields: Fields, name: str, at_most: int) -> list[str]:
    texts = fields.items(name)
    if not texts or len(texts) > at_most or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{name} must be a list of 1 to {at_most} texts")
    return texts


def _row(label: Label) -> dict[str, Any]:
    return asdict(label) | {"scores": dict(label.scores), "abstained": label.abstained}
