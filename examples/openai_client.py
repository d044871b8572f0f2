"""OpenAI's client with a cache below it. OPENAI_BASE_URL and OPENAI_API_KEY say where the model is."""

from openai import OpenAI

from cachestack import CacheStack

with CacheStack.without_engine() as stack:
    client = stack.wrap_client(OpenAI(), tenant="acme")
    for question in ("How do I reset my password?", "How can I reset my password?"):
        answer = client.chat.completions.create(model="gpt-5-mini", messages=[{"role": "user", "content": question}])
        print(answer.choices[0].message.content)
    print(stack.stats().by_tenant["acme"].semantic.num_hits, "of 2 from the cache")
