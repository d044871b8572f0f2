"""The embedded model's tokens, opened once; logs of one application with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachestack.engines.token_space import TokenSpace
from cachestack.lint import LintReport, lint, open_space

RULES = " ".join(
    f"When a customer asks about {topic}, answer politely and name the page of the handbook about {topic}."
    for topic in ("invoices", "refunds", "shipping", "returns", "passwords", "addresses", "coupons", "gifts")
)
QUESTIONS = (
    "Where is my parcel?",
    "Comment puis-je payer ?",
    "Can I change my address now?",
    "I forgot my password, help",
    "Do you ship to Belgium?",
)


@pytest.fixture(scope="session")
def space(llm_path: Path) -> TokenSpace:
    return open_space(str(llm_path))


@pytest.fixture
def run(space: TokenSpace) -> Callable[..., LintReport]:
    def run_(prompts: list[Any], **options: Any) -> LintReport:
        return lint(prompts, model=space, **options)

    return run_


def chat(system: str, question: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"messages": messages, **more}


def chats(*systems: str) -> list[dict[str, Any]]:
    """One request with each of these system texts, in order."""
    return [chat(system, QUESTIONS[i % len(QUESTIONS)]) for i, system in enumerate(systems)]


def kinds(report: LintReport) -> list[str]:
    return [finding.kind for finding in report.findings]
