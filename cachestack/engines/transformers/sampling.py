"""Drawing the next token from a row of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachestack.errors import EngineError
from cachestack.requests import Sampling

if TYPE_CHECKING:
    import torch

MIN_TEMPERATURE = 1e-6


class Sampler:
    """Greedy without a temperature, or at 0; else by temperature and top-p (Holtzman et al. 2020, arXiv 1904.09751).

    Draws invert the cumulative distribution in float64 on the CPU with a generator of their own: the same seed and the
    same logits give the same tokens on every run and in every thread.
    """

    def __init__(self, sampling: Sampling, seed: int) -> None:
        import torch

        self._temperature = sampling.temperature or 0.0
        self._top_p = 1.0 if sampling.top_p is None else sampling.top_p
        self._random = torch.Generator().manual_seed(seed % 2**63)

    def next(self, logits: torch.Tensor) -> int:
        """The next token from `logits` `[vocabulary]`. Raises EngineError for logits that are not finite.

        Minus infinity is a token the model rules out, and is fine as long as another token is left.
        """
        import torch

        peak, best = torch.max(logits, dim=-1)
        if not torch.isfinite(peak):
            raise EngineError("the model's logits are not finite; nothing of this run is kept")
        if self._temperature <= 0.0:
            return int(best)
        scaled = (logits.to("cpu", torch.float64) - float(peak)) / max(self._temperature, MIN_TEMPERATURE)
        return self._draw(torch.softmax(scaled, dim=-1))

    def _draw(self, probabilities: torch.Tensor) -> int:
        import torch

        order: torch.Tensor | None = None
        if self._top_p < 1.0:
            probabilities, order = torch.sort(probabilities, descending=True, stable=True)
            before = torch.cumsum(probabilities, dim=-1) - probabilities
            probabilities = probabilities[before < self._top_p]  # at least the first
        cumulative = torch.cumsum(probabilities, dim=-1)
        at = torch.rand((), generator=self._random, dtype=torch.float64) * cumulative[-1]
        index = min(int(torch.searchsorted(cumulative, at, right=True)), len(cumulative) - 1)
        return index if order is None else int(order[index])
