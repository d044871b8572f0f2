"""Engines on the other side of HTTP: OpenAI-compatible servers and Anthropic's API."""
