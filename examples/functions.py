"""Functions of your own: whatever takes a prompt and gives text, at once or in pieces."""

from collections.abc import Iterator

from cachestack import CacheStack

with CacheStack.without_engine() as stack:

    @stack.wrap(tenant="acme", model="my-model")
    def ask(prompt: str) -> Iterator[str]:
        yield "Open the settings, "
        yield "then press Reset."

    for question in ("How do I reset my password?", "How can I reset my password?"):
        print(*ask(question), sep="")
    print(ask.respond("How do I reset my password?").trace)  # type: ignore[attr-defined]
