"""The in-process engine on torch and Transformers: the only package that imports them, and only when it runs."""
