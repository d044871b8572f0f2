"""Clients that applications have (OpenAI's, Anthropic's), wrapped: the same class, with the cache below it.

`wrapping.py` gives a client's copy another HTTP client (`sending.py`), which reads each request in its provider's
dialect (`openai_chat.py`, `openai_responses.py`, `anthropic_messages.py`), asks the stack, and answers in HTTP. The
client's own code makes its typed objects, streams and errors of that, on a hit as on a miss.
"""
