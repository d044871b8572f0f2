"""Any cross-encoder that sentence-transformers can load, by name or folder."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cachestack.errors import MissingExtra, ModelError
from cachestack.semantic.verifiers.base import Agreement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class OtherCrossEncoder:
    """A TextVerifier. A model with one output gives its sigmoid; one with an `entailment` label the smaller of the two
    directions' probabilities. Both orders are read, and the lower score counts. Raises ModelError."""

    def __init__(self, name: str) -> None:
        try:
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise MissingExtra("sentence-transformers", "local") from error
        try:
            self._model: Any = CrossEncoder(name)
        except Exception as error:  # three libraries with many error classes, which change from version to version
            raise ModelError(
                f"the cross-encoder {name} cannot be loaded: {error}; give the Hugging Face id of one, or a folder "
                "with its config.json, tokenizer and weights"
            ) from error
        config = self._model.config
        if not any("ForSequenceClassification" in kind for kind in config.architectures or ()):
            raise ModelError(
                f"{name} is no cross-encoder but {', '.join(config.architectures or ['of unknown kind'])}: its last "
                "layer would be random; name a model that was trained on pairs of texts"
            )
        self._entailed = _entailed(name, config)
        self._lock = threading.Lock()

    def verify_texts(self, cached: str, asked: str, score: float) -> Agreement:
        import torch

        with self._lock:
            raw = self._model.predict(
                [(cached, asked), (asked, cached)], activation_fn=torch.nn.Identity(), show_progress_bar=False
            )
        lower = float(_probabilities(raw, self._entailed).min())
        return Agreement(None, lower, {})


def _entailed(name: str, config: Any) -> int | None:
    """Which output says that the one follows from the other; None where there is a single output."""
    if config.num_labels == 1:
        return None
    labels = {str(label).lower(): int(number) for number, label in config.id2label.items()}
    for wanted in ("entailment", "duplicate", "paraphrase", "same", "equivalent"):
        if wanted in labels:
            return labels[wanted]
    raise ModelError(
        f"the outputs of {name} are {', '.join(labels)}; one must be `entailment`, `duplicate` or `paraphrase`: set "
        "`id2label` in its config.json"
    )


def _probabilities(raw: NDArray[np.float32], entailed: int | None) -> NDArray[np.float64]:
    import numpy as np

    values = np.asarray(raw, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ModelError("the cross-encoder gave values that are not finite")
    if entailed is None:
        single: NDArray[np.float64] = 1 / (1 + np.exp(-values.reshape(2)))
        return single
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    chosen: NDArray[np.float64] = (raised / raised.sum(axis=1, keepdims=True))[:, entailed]
    return chosen
