"""One file a dialect: from a provider's body to a `Call`, and from an answer back to its body or its events."""
