"""Entries in Redis, shared by processes and machines (extra `redis`)."""
