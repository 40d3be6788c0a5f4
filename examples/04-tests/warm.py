"""Fills the cache before a sale: loads prices in batches, and writes them behind the fence."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from cacheupdater.core.answers import FINISHING
from cacheupdater.ports import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.ports import Loader, Writer

BATCH = 100
PAUSE_S = 60.0  # between batches, for the database has other work
TTL_MS = 3_600_000


async def warm(loader: Loader, writer: Writer, products: Sequence[int]) -> int:
    """The number of prices that were written."""
    written = 0
    for at in range(0, len(products), BATCH):
        some = products[at : at + BATCH]
        token = await writer.token([b"price:%d" % each for each in some])  # before the database is read
        rows = await loader.load([(each,) for each in some])
        entries = [
            Entry(b"price:%d" % each, json.dumps(rows[each,]).encode(), TTL_MS)
            for each in some
            if (each,) in rows
        ]
        answers = await writer.write(token, entries, form="json")
        written += sum(each.result in FINISHING for each in answers)
        await asyncio.sleep(PAUSE_S)
    return written
