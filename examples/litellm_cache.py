"""LiteLLM's response cache in a stack. OPENAI_API_BASE and OPENAI_API_KEY say where the model is."""

import litellm

from cachestack import CacheStack
from cachestack.integrations.litellm import CacheStackCache

with CacheStack.without_engine() as stack:
    litellm.cache = CacheStackCache(stack, tenant="acme")
    for question in ("How do I reset my password?", "How can I reset my password?"):
        answer = litellm.completion(model="openai/gpt-5-mini", messages=[{"role": "user", "content": question}])
        print(answer.choices[0].message.content)
    litellm.cache = None
