"""The demonstration: a written trace of requests, replayed with and without CacheStack, that checks itself."""
