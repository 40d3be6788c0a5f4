"""Packs as the ledger's records, and where keys lie: what the queues of the group's stories share."""

from __future__ import annotations

import numpy as np

from cacheupdater_client.protocol.wire import Malformed, decode_pack, partition_of
from group.ledger import Records
from group.rows import PREFIX


def owners(keys, partitions):
    """The partition of each key, by its number."""
    return np.array([partition_of(PREFIX + b"%d" % n, partitions) for n in range(keys)])


def records(found):
    """The ledger's records from triples of partition, offset and payload. A payload that is no pack is skipped."""
    lines = []
    for partition, offset, payload in found:
        try:
            pack = decode_pack(payload)
        except Malformed:
            continue
        keys = np.array(b" ".join(pack.keys).replace(PREFIX, b"").split(), dtype=np.int64)
        shape = len(keys)
        counts = np.array(pack.counts or [1] * shape, dtype=np.int64)
        where = (np.full(shape, each, dtype=np.int64) for each in (partition, offset, pack.kind))
        lines.append((*where, keys, counts))
    columns = zip(*lines, strict=True) if lines else [[np.zeros(0, dtype=np.int64)]] * 5
    return Records(*(np.concatenate(column) for column in columns))
