"""Short, visible, and without secrets: what a report shows of a prompt."""

from __future__ import annotations

from cachestack.lint.masking import masked

AROUND, VALUE = 28, 44
_SHOWN = str.maketrans({"\n": "⏎", "\r": "␍", "\t": "⇥", "\u00a0": "⍽", "\u202f": "⍽", "\u200b": "⍽", "\ufeff": "⍽"})


def before(text: str, at: int) -> str:
    return ("…" if at > AROUND else "") + _visible(masked(text, max(0, at - AROUND), at))


def after(text: str, at: int) -> str:
    end = min(len(text), at + AROUND)
    return _visible(masked(text, at, end)) + ("…" if end < len(text) else "")


def value(text: str, start: int, end: int) -> str:
    """Long ones lose their middle."""
    if end - start > VALUE:
        half = VALUE // 2
        return f"{_visible(masked(text, start, start + half))}…{_visible(masked(text, end - half, end))}"
    return _visible(masked(text, start, end))


def _visible(text: str) -> str:
    shown = text.translate(_SHOWN)
    return "".join(c if c.isprintable() else "·" for c in shown)
