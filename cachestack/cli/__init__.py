"""The command line: one file a command; `app.py` ties them together."""
