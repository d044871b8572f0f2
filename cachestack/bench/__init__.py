"""Benchmarks that check what they time: `cachestack bench`."""
