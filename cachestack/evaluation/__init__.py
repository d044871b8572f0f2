"""Measurements on files of examples: what `cachestack eval` runs."""
