"""A streamed response: created, each output item from its addition to its end, completed; all events are numbered."""

from __future__ import annotations

from typing import Any

from cachestack.bodies.call import Call
from cachestack.decisions import Response
from cachestack.gateway.dialects.responses_shapes import begun, finished, passed_on, text_item, text_part
from cachestack.gateway.dialects.responses_whole import item_events
from cachestack.gateway.faults import Fault
from cachestack.gateway.wire import event
from cachestack.requests import Chunk


class ResponseEvents:
    """Text goes into messages that are opened and closed here. Items of other kinds come as the provider's events, and
    are only numbered anew."""

    def __init__(self, call: Call, trace_id: str) -> None:
        self._call = call
        self._trace_id = trace_id
        self._num_events = 0
        self._output: list[dict[str, Any]] = []
        self._text: list[str] | None = None  # of the message that is open; it is the last of the output
        self._passed: dict[int, int] = {}  # from the provider's number of an item to ours

    def begin(self) -> bytes:
        response = begun(self._call, self._trace_id)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def feed(self, chunk: Chunk) -> bytes:
        if chunk.delta is not None:
            return self._pass_on(dict(chunk.delta.body))
        if not chunk.text:
            return b""
        opened = self._open_text() if self._text is None else b""
        assert self._text is not None, "a message is open"
        self._text.append(chunk.text)
        return opened + self._of_text("response.output_text.delta", delta=chunk.text, logprobs=[])

    def end(self, response: Response) -> bytes:
        return self._close_text() + self._over(response)

    def whole(self, response: Response) -> bytes:
        output = (response.body or {}).get("output") or []
        return b"".join(self._event(**one) for one in item_events(output)) + self._over(response)

    def _over(self, response: Response) -> bytes:
        if response.body is not None:
            whole = {**passed_on(self._call, response, response.body), "id": f"resp_{self._trace_id}"}
        else:
            whole = finished(self._call, response, self._output)
        name = "response.incomplete" if whole.get("status") == "incomplete" else "response.completed"
        return self._event(name, response=whole)

    def failed(self, fault: Fault) -> bytes:
        code = fault.code or "server_error"
        error = {"code": code, "message": fault.message}
        failed = {**begun(self._call, self._trace_id), "status": "failed", "output": self._output, "error": error}
        told = self._event("error", code=code, message=fault.message, param=fault.param, error=error)
        return told + self._event("response.failed", response=failed)

    def _pass_on(self, body: dict[str, Any]) -> bytes:
        name, number, item = body.get("type"), body.get("output_index"), body.get("item")
        if not isinstance(name, str):
            return b""
        if name == "response.output_item.added" and isinstance(number, int) and isinstance(item, dict):
            if item.get("type") == "message":  # opened here, with its first text
                return b""
            closed = self._close_text()
            self._passed[number] = len(self._output)
            self._output.append(item)
            return closed + self._event(**{**body, "output_index": self._passed[number]})
        if isinstance(number, int) and number in self._passed:
            if name == "response.output_item.done" and isinstance(item, dict):
                self._output[self._passed[number]] = item
            return self._event(**{**body, "output_index": self._passed[number]})
        return b"" if self._text is None else self._of_text(**body)

    def _open_text(self) -> bytes:
        self._text = []
        item = text_item(self._trace_id, len(self._output), None, "in_progress")
        self._output.append(item)
        added = self._event("response.output_item.added", output_index=len(self._output) - 1, item=item)
        return added + self._of_text("response.content_part.added", part=text_part(""))

    def _close_text(self) -> bytes:
        if self._text is None:
            return b""
        text, number = "".join(self._text), len(self._output) - 1
        done = self._of_text("response.output_text.done", text=text, logprobs=[])
        done += self._of_text("response.content_part.done", part=text_part(text))
        self._text = None
        self._output[number] = text_item(self._trace_id, number, text, "completed")
        return done + self._event("response.output_item.done", output_index=number, item=self._output[number])

    def _of_text(self, type: str, **values: Any) -> bytes:
        place = {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1, "content_index": 0}
        return self._event(type, **{**values, **place})

    def _event(self, type: str, **values: Any) -> bytes:
        values["sequence_number"] = self._num_events
        self._num_events += 1
        return event({"type": type, **values}, type)
