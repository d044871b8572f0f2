"""Word lists that the guards read, one file a language, in `base.Lexicon` form."""
