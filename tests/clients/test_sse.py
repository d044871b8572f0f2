"""Server-sent events, cut anywhere, keep their bytes and their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachestack.clients.sse import Splitter, written

STREAM = (
    b'event: a\r\ndata: {"n": 1}\r\n\r\ndata: one\ndata: two\n\n: a comment\n\n'
    b'data:{"text": "caf\xc3\xa9"}\n\ndata: [DONE]\n\nlast without an end'
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_cuts_do_not_matter(places: list[int]) -> None:
    splitter, events, begin = Splitter(), [], 0
    for place in [*sorted(places), len(STREAM)]:
        events += splitter.feed(STREAM[begin:place])
        begin = place
    events += splitter.end()
    assert b"".join(event.raw for event in events) == STREAM
    assert [event.data for event in events] == ['{"n": 1}', "one\ntwo", "", '{"text": "café"}', "[DONE]", ""]
    assert [event.name for event in events] == ["a", "", "", "", "", ""]
    assert events[0].json() == {"n": 1}


def test_what_is_written_can_be_read() -> None:
    (event,) = Splitter().feed(written("kind", {"text": "a\nb"}))
    assert (event.name, event.json()) == ("kind", {"text": "a\nb"})
