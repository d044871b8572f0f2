"""The HTTP gateway: any OpenAI or Anthropic client, pointed at it, goes through CacheStack. See `docs/gateway.md`."""
