"""Anthropic's client with a cache below it. ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY say where the model is."""

from anthropic import Anthropic

from cachestack import CacheStack

with CacheStack.without_engine() as stack:
    client = stack.wrap_client(Anthropic(), tenant="acme")
    for question in ("How do I reset my password?", "How can I reset my password?"):
        asked = {"role": "user", "content": question}
        with client.messages.stream(model="claude-haiku-4-5", max_tokens=200, messages=[asked]) as stream:
            print("".join(stream.text_stream))
    print(stack.stats().by_tenant["acme"].semantic.num_hits, "of 2 from the cache")
