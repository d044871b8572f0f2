"""The ways to open a stack: with the model in this process, without one, with one behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self, cast

from cachestack.policy_set import PolicySet


class Opened:
    """Constructors of CacheStack. Each asks `build.py`, when it is called and not at import."""

    @classmethod
    def local(
        cls,
        *,
        model: str | None = None,
        encoder: str | None = None,
        policies: str | Path | PolicySet | None = None,
        home: str | Path | None = None,
        store: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
        request_log: bool = False,
        request_log_text: bool = False,
    ) -> Self:
        """A stack with the in-process engine.

        `model` and `encoder`: a catalogue name, a Hugging Face id or a local folder; the defaults are the embedded
        models. `encoder="none"` matches exactly only. `home` holds entries and statistics (default: CACHESTACK_HOME);
        `store` says where entries are instead: `redis://…` (default: CACHESTACK_STORE; see docs/operations.md).
        `request_log` writes each request's trace there, for `cachestack tail`, without a word of it; with
        `request_log_text`, questions and answers too.
        Models are loaded at the first request that needs them.
        """
        from cachestack.build import build_local

        opened: Self = build_local(
            cast(Any, cls),
            model=model,
            encoder=encoder,
            policies=policies,
            home=home,
            store=store,
            device=device,
            dtype=dtype,
            request_log=request_log,
            request_log_text=request_log_text,
        )
        return opened

    @classmethod
    def without_engine(
        cls,
        *,
        encoder: str | None = None,
        policies: str | Path | PolicySet | None = None,
        home: str | Path | None = None,
        store: str | None = None,
        request_log: bool = False,
        request_log_text: bool = False,
    ) -> Self:
        """A stack for wrapping your own calls: no language model of its own."""
        from cachestack.build import build_without_engine

        opened: Self = build_without_engine(
            cast(Any, cls),
            encoder=encoder,
            policies=policies,
            home=home,
            store=store,
            request_log=request_log,
            request_log_text=request_log_text,
        )
        return opened

    @classmethod
    def remote(
        cls,
        base_url: str,
        *,
        kind: Literal["openai", "anthropic"] = "openai",
        encoder: str | None = None,
        policies: str | Path | PolicySet | None = None,
        home: str | Path | None = None,
        store: str | None = None,
        **options: Any,
    ) -> Self:
        """A stack with an engine behind HTTP: any server that speaks OpenAI's API, or Anthropic's.

        `options` are those of `OpenAIEngine` and `AnthropicEngine` in `cachestack.engines.remote`: provider, model,
        api_key, api_key_env, headers, timeouts, retries, prompt_caching, …
        """
        from cachestack.build import build_remote

        opened: Self = build_remote(
            cast(Any, cls),
            base_url,
            kind=kind,
            encoder=encoder,
            policies=policies,
            home=home,
            store=store,
            options=options,
        )
        return opened
