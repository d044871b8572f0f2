"""How the shipped verifiers are made: `python -m cachestack.training`. Nothing else imports this package."""
