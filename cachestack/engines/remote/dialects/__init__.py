"""One file for each shape in which a provider is asked and answers."""
