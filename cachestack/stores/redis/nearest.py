"""The entries nearest to a vector, by Redis's own vector sets: two round trips, however many slots there are.

A vector set ranks quantised vectors (8 bits a dimension): what it finds is read, and compared again with the float32
vectors that the entries keep. So more are asked for than are wanted.
"""

from __future__ import annotations

from cachestack.entries import Entry
from cachestack.keys import Partition
from cachestack.stores.redis.store import RedisStore

_SPARE = 8
SEARCH_WIDTH = 200
"""How many of the nearest a vector set looks at (its EF)."""


def nearest(
    store: RedisStore, partition: Partition, contract: str, vector: bytes, encoder: str, num: int
) -> list[Entry]:
    """About the `num` nearest entries or more, of one encoder and under one contract, in no particular order.

    Raises StoreError.
    """
    names = [slot.vectors(encoder, contract, len(vector)) for slot in store.names.slots(partition)]
    ask = ("FP32", vector, "COUNT", num + _SPARE, "EF", SEARCH_WIDTH)
    found = store.link.pipelined([("VSIM", name, *ask) for name in names])
    keys = [bytes(key) for of_slot in found for key in of_slot or ()]
    entries = store.many(partition, keys)
    return [e for e in entries if e.group == contract and e.encoder == encoder]
