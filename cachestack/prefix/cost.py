"""What prefill costs on this machine, learnt from the requests that are served anyway.

A pass over n new tokens after p old ones takes about

    a + b·n + c·n·(p + n/2)   seconds, with a, b, c ≥ 0

a for the pass itself, b for the weights' work on each token, c for a token's attention to one before it. Both sums grow
alike however a prefill is split, so that splitting costs another a, and what a kept piece [start, stop) saves does not
depend on what is computed around it. Later tokens save more: each looks at all before it.

The fit leans to the low side, so that a pass during which the machine was busy does not flatter what is saved: of
passes alike (n and p within a factor of two) only the quickest of the last few counts, and among those the quartile
regression (Koenker & Bassett 1978, by reweighted least squares) lets slow ones lie above it. A coefficient that the
passes seen so far cannot tell apart from the others is zero: where all were about as long, there is only b.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import combinations

_MIN_TOKENS = 32
"""Shorter passes alone say nothing of what a token costs: most of their time is the pass itself."""

_LAST_PASSES = 16
_MAX_CELLS = 64
_QUANTILE = 0.25
_NUM_ROUNDS = 8
_MAX_MODELS = 16

Coefficients = tuple[float, float, float]


class PrefillCost:
    """The cost of prefill for one model. Thread-safe; the same passes in the same order give the same estimates."""

    def __init__(self) -> None:
        self._cells: OrderedDict[tuple[int, int], deque[_Pass]] = OrderedDict()
        self._coefficients: Coefficients | None = None
        self._num_observed = 0
        self._refit_at = 1
        self._lock = threading.Lock()

    def observe(self, num_tokens: int, seconds: float, *, past_tokens: int = 0, num_passes: int = 1) -> None:
        """A prefill of `num_tokens` after `past_tokens` took so long. What cannot be a time is left out."""
        if num_tokens < 1 or num_passes < 1 or not 0 < seconds < math.inf:
            return
        cell = (num_tokens.bit_length(), past_tokens.bit_length())
        pairs = num_tokens * (past_tokens + num_tokens / 2)
        with self._lock:
            passes = self._cells.setdefault(cell, deque(maxlen=_LAST_PASSES))
            passes.append(_Pass(num_passes, num_tokens, pairs, seconds))
            self._cells.move_to_end(cell)
            if len(self._cells) > _MAX_CELLS:
                self._cells.popitem(last=False)
            self._num_observed += 1
            if self._num_observed >= self._refit_at:
                self._refit_at = self._num_observed + min(_LAST_PASSES, 1 + self._num_observed // 8)
                self._coefficients = _fit([min(of, key=_Pass.rate) for of in self._cells.values()])

    def seconds(self, num_tokens: int, *, past_tokens: int = 0) -> float:
        """Estimated seconds of one pass; 0 for no tokens, and while nothing is known."""
        known = self._coefficients  # read once: another thread may replace them, or forget them
        if num_tokens < 1 or known is None:
            return 0.0
        return known[0] + _saved_s(known, past_tokens, past_tokens + num_tokens)

    def saved_s(self, start: int, stop: int) -> float:
        """Estimated seconds that a prompt is ready earlier when KV of `[start, stop)` is there already; 0 while nothing
        is known. The pass itself is not counted: at least one token is computed in any case."""
        known = self._coefficients
        return 0.0 if stop <= start or known is None else _saved_s(known, start, stop)


def _saved_s(coefficients: Coefficients, start: int, stop: int) -> float:
    _, per_token, per_pair = coefficients
    return per_token * (stop - start) + per_pair * (stop * stop - start * start) / 2


class PrefillCosts:
    """One PrefillCost a model, by fingerprint: the least recently used are forgotten beyond a few."""

    def __init__(self) -> None:
        self._by_model: OrderedDict[str, PrefillCost] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, fingerprint: str) -> PrefillCost:
        with self._lock:
            cost = self._by_model.setdefault(fingerprint, PrefillCost())
            self._by_model.move_to_end(fingerprint)
            if len(self._by_model) > _MAX_MODELS:
                self._by_model.popitem(last=False)
            return cost


class _Pass:
    """One observation: its terms `[passes, tokens, pairs of tokens]` and its time."""

    __slots__ = ("seconds", "terms")

    def __init__(self, num_passes: int, num_tokens: int, num_pairs: float, seconds: float) -> None:
        self.terms = (float(num_passes), float(num_tokens), num_pairs)
        self.seconds = seconds

    def rate(self) -> float:
        """Seconds a token: what the passes of one cell are compared by."""
        return self.seconds / self.terms[1]


def _fit(passes: Sequence[_Pass]) -> Coefficients | None:
    """Coefficients of the quartile through the passes, none below zero. None while no pass is long enough."""
    if max(p.terms[1] for p in passes) < _MIN_TOKENS:
        return None
    terms = _told_apart(passes)
    weights = [1.0] * len(passes)
    found: Coefficients = (0.0, 0.0, 0.0)
    for _ in range(_NUM_ROUNDS):
        found = _least_squares(passes, weights, terms)
        weights = [_weight(_predicted(found, p) / p.seconds - 1) for p in passes]
    return found


def _told_apart(passes: Sequence[_Pass]) -> tuple[int, ...]:
    """Which terms these passes tell apart: a needs passes of unlike lengths, c of unlike numbers of tokens before."""
    per_pass = [p.terms[1] / p.terms[0] for p in passes]
    before = [p.terms[2] / p.terms[1] for p in passes]
    terms = [1]
    if len(passes) >= 2 and max(per_pass) >= 2 * min(per_pass):
        terms.insert(0, 0)
    if len(passes) >= 3 and max(before) >= 4 * min(before):
        terms.append(2)
    return tuple(terms)


def _weight(excess: float) -> float:
    """Of a relative error in the quantile's loss, made smooth at 0."""
    return ((1 - _QUANTILE) if excess > 0 else _QUANTILE) / max(abs(excess), 1e-3)


def _predicted(coefficients: Coefficients, one: _Pass) -> float:
    return sum(c * t for c, t in zip(coefficients, one.terms, strict=True))


def _least_squares(passes: Sequence[_Pass], weights: Sequence[float], terms: Sequence[int]) -> Coefficients:
    """Weighted least squares of relative errors with no coefficient below zero: the best of all choices of terms."""
    rows = [[p.terms[i] / p.seconds for i in terms] for p in passes]
    scales = [max(max(row[i] for row in rows), 1e-300) for i in range(len(terms))]
    rows = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in rows]
    n = range(len(terms))
    squares = [[sum(w * r[i] * r[j] for w, r in zip(weights, rows, strict=True)) for j in n] for i in n]
    sums = [sum(w * r[i] for w, r in zip(weights, rows, strict=True)) for i in n]
    best, best_gain = (0.0,) * len(terms), 0.0
    for size in range(1, len(terms) + 1):
        for chosen in combinations(n, size):
            solved = _solve([[squares[i][j] for j in chosen] for i in chosen], [sums[i] for i in chosen])
            if solved is None or min(solved) < 0:
                continue
            gain = sum(x * sums[i] for x, i in zip(solved, chosen, strict=True))
            if gain > best_gain:
                best = tuple(dict(zip(chosen, solved, strict=True)).get(i, 0.0) for i in n)
                best_gain = gain
    by_term = {term: value / scale for term, value, scale in zip(terms, best, scales, strict=True)}
    return (by_term.get(0, 0.0), by_term.get(1, 0.0), by_term.get(2, 0.0))


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """The solution of a small symmetric system by elimination, or None where it has none that can be trusted."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if abs(rows[i][i]) < 1e-12 * max(abs(matrix[i][i]), 1e-300):
            return None
        for r in range(i + 1, size):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    solved = [0.0] * size
    for i in reversed(range(size)):
        solved[i] = (rows[i][size] - sum(rows[i][j] * solved[j] for j in range(i + 1, size))) / rows[i][i]
    return solved
