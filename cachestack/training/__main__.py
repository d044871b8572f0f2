"""`python -m cachestack.training`: train the local verifier, or the model of freshness or of admission,
and write it into the package."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

SEMANTIC = Path(__file__).parent.parent / "semantic"
SHIPPED = {
    "local": SEMANTIC / "verifiers" / "data",
    "freshness": SEMANTIC / "freshness" / "data",
    "admission": SEMANTIC / "admission" / "data",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m cachestack.training", description=__doc__)
    parser.add_argument("what", nargs="?", choices=SHIPPED, default="local")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="another number gives slightly other weights")
    parser.add_argument("--out", type=Path, help="folder for the trained file (default: the package's)")
    options = parser.parse_args()

    folder = options.out or SHIPPED[options.what]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{options.what}.npz"
    makers = {"freshness": _freshness, "admission": _admission}
    data, card = (
        _local(options.seed, options.threads) if options.what == "local" else makers[options.what](options.seed)
    )
    path.write_bytes(data)
    print(f"{path}: {len(data) / 1e6:.2f} MB")
    print(json.dumps(card, indent=1))


def _freshness(seed: int) -> tuple[bytes, object]:
    from cachestack.semantic.freshness.model import write
    from cachestack.training.freshness import train_freshness

    made = train_freshness(seed=seed, say=lambda what: print(what, flush=True))
    return write(made), made.card


def _admission(seed: int) -> tuple[bytes, object]:
    from cachestack.semantic.admission.model import write
    from cachestack.training.admission import train_admission

    made = train_admission(seed=seed, say=lambda what: print(what, flush=True))
    return write(made), made.card


def _local(seed: int, threads: int) -> tuple[bytes, object]:
    import torch

    torch.set_num_threads(threads)
    from cachestack.semantic.embed import SentenceEncoder
    from cachestack.semantic.verifiers.artefact import write
    from cachestack.training.local import train_local

    encoder = SentenceEncoder("all-minilm-l6-v2")
    made = train_local(encoder, encoder.weights_sha256, seed=seed, say=lambda what: print(what, flush=True))
    return write(made), made.card


if __name__ == "__main__":
    main()
