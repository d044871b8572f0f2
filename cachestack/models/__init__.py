"""Known models: what they are, how to get them, and where a model name leads."""
