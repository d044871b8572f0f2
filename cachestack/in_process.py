"""What a stack offers on its in-process engine besides answers: labels, measuring, warm-up, the KV it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cachestack.asking import Prompt, as_request
from cachestack.engines.base import Engine, is_token_engine
from cachestack.errors import UsageError
from cachestack.labelling import Deciding, Scores
from cachestack.policy_set import PolicySet
from cachestack.prefix.base import PoolSizes
from cachestack.prefix.layer import PrefixLayer
from cachestack.prompts import StructuredPrompt
from cachestack.requests import Request
from cachestack.score import TextScoring
from cachestack.stats import Stats

if TYPE_CHECKING:
    from cachestack.classified import Label
    from cachestack.classify import ClassifyReport
    from cachestack.measure import MeasureReport
    from cachestack.warming import Warmed


class InProcess:
    """A part of CacheStack, which sets the attributes below."""

    policies: PolicySet
    _prefix: PrefixLayer
    _scoring: TextScoring
    _stats: Stats
    _clock: Callable[[], float]

    def _check_open(self) -> None:
        raise NotImplementedError

    def engine(self, name: str | None = None) -> Engine:
        raise NotImplementedError

    def classify(
        self,
        texts: Iterable[str],
        *,
        labels: Sequence[str],
        prompt: str,
        template: str = "{text}",
        tenant: str = "default",
        **options: Any,
    ) -> ClassifyReport:
        """Label each text by constrained scoring over a kept prefix. See `cachestack.classify.classify`."""
        from cachestack.classify import classify

        self._check_open()
        policy = self.policies.policy(tenant)
        engine = self._token_engine("classify")
        report = classify(
            engine,
            self._prefix,
            policy,
            texts if isinstance(texts, str) else list(texts),  # one text is refused there, not taken for letters
            labels,
            prompt=prompt,
            template=template,
            tenant=tenant,
            rows=self._scoring.rows,
            **options,
        )
        self._stats.count(
            tenant,
            classified_items=len(report.results),
            tokens__prefilled=report.summary.prompt_tokens - report.summary.reused_tokens,
            tokens__reused=report.summary.reused_tokens,
        )
        return report

    def score(
        self,
        text: str,
        *,
        labels: Sequence[str],
        prompt: str,
        template: str = "{text}",
        tenant: str = "default",
        user: str | None = None,
        scores: Scores = "sum",
        min_probability: float = 0.0,
        min_mass: float = 0.0,
    ) -> Label:
        """Label one text, as `classify` labels each of many; made to be called often, from many threads.

        The prefix is kept as in `classify`. Calls over one prompt that come at the same time share a pass; what was
        asked before, in the state the model is in, costs none. A text that cannot be scored gives a Label with an
        error. Raises LabelError, UsageError, RequestError and ContextTooLong as `classify` does, and EngineError where
        the model fails.
        """
        self._check_open()
        how = Deciding(scores, min_probability, min_mass)
        done = self._scoring.score(
            self._token_engine("score"),
            self.policies.policy(tenant),
            text,
            labels,
            prompt=prompt,
            template=template,
            tenant=tenant,
            user=user,
            how=how,
        )
        self._stats.count(
            tenant,
            classified_items=1,
            tokens__prefilled=done.num_tokens - done.reused_tokens,
            tokens__reused=done.reused_tokens,
        )
        return done.label

    def measure(self, prompt: str, texts: Sequence[str], **options: Any) -> MeasureReport:
        """Whether keeping `prompt` would pay for these items on this machine. See `cachestack.measure.measure`."""
        from cachestack.measure import measure

        self._check_open()
        return measure(self._token_engine("measure"), prompt, texts, **options)

    def warm(
        self,
        prompt: Prompt | Request | None = None,
        *,
        pin_s: float | None = None,
        engine: str | None = None,
        **options: Any,
    ) -> Warmed:
        """Compute and keep the stable part of a prompt before anybody asks, without generating anything.

        `prompt` and `options` as in `chat`. With `system` alone, a StructuredPrompt without a query, or messages that
        do not end with the user's, all that is given is the prefix; else what a request keeps as stable: the system
        prompt, marked messages, the history. The next request that begins so is a full hit, equal bit for bit to one
        that was never warmed. `pin_s` keeps the prefix from eviction for so many seconds. Where nothing can be kept,
        `Warmed.reason` says why. One prompt a call: warm several in a loop. Raises RequestError, UnknownTenant,
        ContextTooLong, EngineError.
        """
        from cachestack.warming import STAND_IN, is_duration, warm

        self._check_open()
        if not (pin_s is None or is_duration(pin_s)):
            raise UsageError(f"pin_s must be a positive number of seconds, not {pin_s!r}")
        if isinstance(prompt, StructuredPrompt) and prompt.user_query is None:
            prompt = prompt.with_query(STAND_IN.content)
        request = as_request(() if prompt is None else prompt, **options)
        chosen = self._token_engine("warm", engine)
        warmed = warm(
            chosen, self._prefix, self.policies.policy(request.tenant), request, pin_s=pin_s, clock=self._clock
        )
        self._stats.count(request.tenant, tokens__prefilled=warmed.computed_tokens)
        return warmed

    def memory(self) -> PoolSizes:
        """The KV that is kept: bytes and tokens by model, dtype and tenant, by prefix, and the budget."""
        return self._prefix.sizes()

    def _token_engine(self, what: str, name: str | None = None) -> Any:
        engine = self.engine(name)
        if not is_token_engine(engine):
            raise UsageError(f"{what} needs the in-process engine; build the stack with CacheStack.local()")
        return engine
