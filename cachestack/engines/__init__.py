"""Engines: what turns a request into text."""
