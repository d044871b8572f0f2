"""The official Anthropic client against the embedded model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.gateway.served import Served

ASKED: dict[str, Any] = {
    "max_tokens": 5,
    "system": "You are the help desk of ACME.",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "How do I cancel?"}]}],
}


@pytest.fixture(scope="module")
def client(embedded: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=embedded.url, api_key="none", max_retries=0) as client:
        yield client


def test_the_second_time_is_a_hit(client: anthropic.Anthropic, embedded: Served) -> None:
    raw = [client.messages.with_raw_response.create(model=embedded.model, **ASKED) for _ in range(2)]
    assert [one.headers["cache-status"].split("; ")[1] for one in raw] == ["fwd=uri-miss", "hit"]
    first, again = (one.parse() for one in raw)
    assert first.content[0].text == again.content[0].text
    assert first.stop_reason == again.stop_reason == "max_tokens"
    assert again.usage.input_tokens == 0
    assert again.usage.cache_read_input_tokens == first.usage.input_tokens + first.usage.cache_read_input_tokens
    assert again.usage.output_tokens == 5


def test_streams_put_themselves_together(client: anthropic.Anthropic, embedded: Served) -> None:
    whole = client.messages.create(model=embedded.model, **ASKED)
    for _ in range(2):
        with client.messages.stream(model=embedded.model, **ASKED) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        assert final.content[0].text == whole.content[0].text
        assert final.stop_reason == "max_tokens"
        assert final.usage.output_tokens == 5
        assert kinds[0] == "message_start"
        assert kinds[-2:] == ["message_delta", "message_stop"]


def test_events_as_they_are_sent(client: anthropic.Anthropic, embedded: Served) -> None:
    kinds = [event.type for event in client.messages.create(model=embedded.model, stream=True, **ASKED)]
    middle = kinds[2:-3]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert middle
    assert set(middle) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_models_in_anthropic_s_shape(client: anthropic.Anthropic, embedded: Served) -> None:
    assert next(iter(client.models.list())).id == embedded.model
    assert client.models.retrieve(embedded.model).type == "model"


def test_errors_in_anthropic_s_shape(client: anthropic.Anthropic, embedded: Served) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens is missing") as caught:
        client.post("/v1/messages", cast_to=object, body={"model": embedded.model, "messages": []})
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="another", **ASKED)
    assert missing.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match="tools"):
        client.messages.create(model=embedded.model, tools=[{"name": "f", "input_schema": {"type": "object"}}], **ASKED)


async def test_async_whole_and_streamed(embedded: Served) -> None:
    async with anthropic.AsyncAnthropic(base_url=embedded.url, api_key="none", max_retries=0) as client:
        whole = await client.messages.create(model=embedded.model, **ASKED)
        async with client.messages.stream(model=embedded.model, **ASKED) as stream:
            text = "".join([piece async for piece in stream.text_stream])
        assert text == whole.content[0].text
