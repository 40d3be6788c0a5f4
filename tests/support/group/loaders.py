"""A Python loader that freezes its own process when it has read the rows, and continues with them when it is woken.

That is the worst moment for a zombie: it holds old rows, and writes them next. It freezes once, if the file exists that
FREEZE_FILE names.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import asyncpg

_FREEZE = Path(os.environ.get("FREEZE_FILE", "/nonexistent"))  # noqa: TID251  how the test tells its child
_DATABASE = os.environ.get("LOADER_DATABASE", "")  # noqa: TID251  as above


def freeze_if_told():
    if _FREEZE.exists():
        _FREEZE.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)


async def items(ids):
    connection = await asyncpg.connect(_DATABASE.replace("+asyncpg", ""))
    try:
        rows = await connection.fetch("SELECT id, version FROM items WHERE id = ANY($1::bigint[])", ids)
    finally:
        await connection.close()
    freeze_if_told()
    return {row["id"]: str(row["version"]) for row in rows}
