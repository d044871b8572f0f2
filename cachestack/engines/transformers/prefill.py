"""KV alone: the passes of a prefill, without a token generated after them."""

from __future__ import annotations

from collections.abc import Sequence

from cachestack.engines.base import KVRun
from cachestack.engines.transformers.decode import Passes
from cachestack.engines.transformers.load import Loaded


def prefill(
    loaded: Loaded, past: Sequence[KVRun], pieces: Sequence[Sequence[int]], *, kv_dtype: str | None = None
) -> tuple[KVRun, ...] | None:
    """One run for each piece of token ids, after `past`; None where a value is not finite.

    They are the passes that a generation makes which is split at the same places, over the same tensors, so that what
    continues from either is equal bit for bit. For models whose `unsupported_reason` is None. Raises EngineError for
    whatever goes wrong in the model.
    """
    passes = Passes(loaded, past, forkable=True)
    done = sum(run.num_tokens for run in past)
    runs: list[KVRun] = []
    for piece in pieces:
        passes.feed(piece, wants_logits=False)
        runs.append(passes.keep(done, done + len(piece), kv_dtype))
        done += len(piece)
    return tuple(runs) if all(run.payload.is_finite() for run in runs) else None
