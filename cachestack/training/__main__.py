"""`python -m cachestack.training`: train the local verifier and write it into the package, or elsewhere."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

SHIPPED = Path(__file__).parent.parent / "semantic" / "verifiers" / "data"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m cachestack.training", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="another number gives slightly other weights")
    parser.add_argument(
        "--out", type=Path, default=SHIPPED, help="folder for the trained file (default: the package's)"
    )
    options = parser.parse_args()

    import torch

    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "local.npz"
    data, card = _local(options.seed)
    path.write_bytes(data)
    print(f"{path}: {len(data) / 1e6:.2f} MB")
    print(json.dumps(card, indent=1))


def _local(seed: int) -> tuple[bytes, object]:
    from cachestack.semantic.embed import SentenceEncoder
    from cachestack.semantic.verifiers.artefact import write
    from cachestack.training.local import train_local

    encoder = SentenceEncoder("all-minilm-l6-v2")
    made = train_local(encoder, encoder.weights_sha256, seed=seed, say=lambda what: print(what, flush=True))
    return write(made), made.card


if __name__ == "__main__":
    main()
