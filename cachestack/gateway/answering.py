"""The endpoints that answer: chat, completions, responses, messages. One way through for all dialects."""

from __future__ import annotations

from contextlib import aclosing, nullcontext

from cachestack.access import Authenticator
from cachestack.adriver import Steps
from cachestack.bodies.call import Call, Given
from cachestack.bodies.wishes import wishes_of
from cachestack.decisions import Reason, Response
from cachestack.gateway.admission import Admission, Bill
from cachestack.gateway.cache_status import cache_status, hit_id
from cachestack.gateway.dialect import Dialect
from cachestack.gateway.faults import fault_of
from cachestack.gateway.parsed import ParsedCalls
from cachestack.gateway.requesting import JSON, ErrorShape, Exchange, Gone, Within, no_context
from cachestack.gateway.stack_port import StackPort
from cachestack.gateway.told import RawHeaders, ToldHeaders, joined, picked
from cachestack.gateway.wire import dump, read_object
from cachestack.tracing import TraceBuilder

_EVENT_STREAM = b"text/event-stream; charset=utf-8"
_HIT_ID = b"x-cachestack-hit-id"
_NOTHING = nullcontext()
_EXACT = (b"cache-status", b"CacheStack; hit; detail=exact")
_MAX_AT_ONCE_BYTES = 64 * 1024
"""A longer body is read, and its keys are made, in a thread: meanwhile the others are answered."""


class Answering:
    """One dialect's endpoint."""

    def __init__(
        self,
        port: StackPort,
        dialect: Dialect,
        shape: ErrorShape,
        authenticator: Authenticator,
        admission: Admission,
        parsed: ParsedCalls,
        *,
        max_body_bytes: int,
        within: Within = no_context,
    ) -> None:
        self._port = port
        self._dialect = dialect
        self._shape = shape
        self._authenticator = authenticator
        self._admission = admission
        self._parsed = parsed
        self._max_body_bytes = max_body_bytes
        self._within = within
        self._told = ToldHeaders()

    async def __call__(self, exchange: Exchange) -> None:
        part = picked(exchange.scope["headers"])
        told = self._told.get(part)
        headers = joined(part) if told is None else told.headers
        principal = self._authenticator.authenticate(headers)
        if told is None:
            told = self._told.keep(part, headers, wishes_of(headers))
        raw = await exchange.body(self._max_body_bytes)
        if exchange.is_late:
            principal = self._authenticator.authenticate(headers)
        known_by = (self._dialect, principal, told)
        call = self._parsed.get(known_by, raw)
        is_short = len(raw) <= _MAX_AT_ONCE_BYTES
        if call is None:
            given = Given(principal, told.wishes, headers)
            call = self._read(raw, given) if is_short else await self._port.in_thread(self._read, raw, given)
            self._parsed.put(known_by, raw, call)
        trace = TraceBuilder(exchange.trace_id, principal.tenant)
        around = _NOTHING if self._within is no_context else self._within(exchange.headers)
        with around, self._admission.admit(principal) as lease:
            bill = Bill(self._admission, lease, principal, call.request, trace)
            try:
                begun = self._port.begin(call, trace, at_once=is_short)
                if isinstance(begun, Response) and not call.stream:
                    body = call.replay.body(begun, lambda: dump(self._dialect.body(call, begun)))
                    await exchange.answer_bytes(body, JSON, headers=_headers(trace, begun))
                    return
                async with exchange.while_there():
                    if call.stream or isinstance(begun, Response):
                        await self._stream(exchange, call, trace, bill, begun)
                    else:
                        await self._whole(exchange, call, trace, bill, begun)
            except Exception as error:
                if exchange.has_begun or isinstance(error, Gone):
                    raise
                fault = fault_of(error, exchange.trace_id)
                await exchange.answer_fault(fault, self._shape, _headers(trace))
            finally:
                bill.close()

    def _read(self, raw: bytes, given: Given) -> Call:
        return self._dialect.parse(read_object(raw), given)

    async def _whole(self, exchange: Exchange, call: Call, trace: TraceBuilder, bill: Bill, steps: Steps) -> None:
        response = await self._port.respond(steps)
        bill.charge(response)  # before its end is sent: who asks again at once finds it charged
        await exchange.answer(self._dialect.body(call, response), headers=_headers(trace, response))

    async def _stream(
        self, exchange: Exchange, call: Call, trace: TraceBuilder, bill: Bill, begun: Response | Steps
    ) -> None:
        """Nothing is sent before the first piece is there, so that what fails before has its status."""
        events, has_fed = self._dialect.events(call, exchange.trace_id), False
        async with aclosing(self._port.stream(begun)) as pieces:
            try:
                async for piece in pieces:
                    opening = b""
                    if not exchange.has_begun:
                        await exchange.begin(200, _EVENT_STREAM, [*_headers(trace), (b"cache-control", b"no-cache")])
                        opening = events.begin()
                    if isinstance(piece, Response):
                        bill.charge(piece)
                        is_whole = not (has_fed or piece.is_text or piece.body is None)
                        ending = events.whole(piece) if is_whole else events.end(piece)
                        await exchange.write(opening + ending, more=False)
                        return
                    has_fed = True
                    bill.num_chars += len(piece.text)
                    if sent := opening + events.feed(piece):
                        await exchange.write(sent)
            except Exception as error:
                if not exchange.has_begun:
                    raise
                await exchange.write(events.failed(fault_of(error, exchange.trace_id)), more=False)


def _headers(trace: TraceBuilder, response: Response | None = None) -> RawHeaders:
    if response is not None and response.hit_id is not None and _is_exact_hit(response):
        return [_EXACT, (_HIT_ID, response.hit_id.encode())]
    so_far = trace.trace() if response is None else response.trace
    headers = [(b"cache-status", cache_status(so_far).encode())]
    entry_id = hit_id(so_far) if response is None else response.hit_id
    return headers if entry_id is None else [*headers, (_HIT_ID, entry_id.encode())]


def _is_exact_hit(response: Response) -> bool:
    """With nothing besides."""
    steps = response.trace.steps
    return len(steps) == 3 and steps[1].reason is Reason.EXACT and steps[2].reason is Reason.REPLAYED
