"""Makes the slot, and makes it anew where it is lost: dropped, invalid, or at a place that the server cannot read.

`feed` and `installation` call it. A new slot begins at the place where it was made, so changes between the old one's place and
this are lost, and a reader must be told. That must survive the reader's death. So the word of it is written into the WAL behind
the new slot's first place: whoever reads the slot reads the word first, until it is confirmed. Slot and word are made by one
message to the server, which carries it out even if the sender has died meanwhile. Before version 14 no such word is read. There
only the process that made the slot knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.adapters.feed_replication import failures
from cacheupdater.adapters.feed_replication.catalogue import PLUGIN
from cacheupdater.adapters.feed_replication.connections import driver

if TYPE_CHECKING:
    from cacheupdater.adapters.feed_replication.connections import Questions

PREFIX = "cacheupdater"  # of our messages in the WAL
# Seconds for a slot to be made. The server waits for the end of all transactions that are open, and hours are rare for one
MAKE_S = 3600.0
_BEAT, _LOST = "beat", "lost"

MAKE = "SELECT pg_create_logical_replication_slot(%s, %s)"
DROP = "SELECT pg_drop_replication_slot(%s)"
_SAY = "SELECT pg_logical_emit_message(false, %s, %s)"
_BEAT_NOW = (
    "SELECT pg_logical_emit_message(false, %s, %s || extract(epoch FROM clock_timestamp())::numeric(20, 3))"
)


async def make(questions: Questions, name: str) -> bool:
    """Makes the slot; False if another process has done so meanwhile."""
    return await _changed(questions, MAKE, (name, PLUGIN))


async def make_anew(questions: Questions, name: str, why: str) -> bool:
    """Makes the slot, and leaves the word that changes were lost; False if another process has done so meanwhile."""
    word = f"{name} {_LOST} {why}"
    return await _changed(questions, f"{MAKE}; {_SAY}", (name, PLUGIN, PREFIX, word))


async def drop(questions: Questions, name: str) -> bool:
    """Drops the slot; False if another process reads it, or has dropped it."""
    return await _changed(questions, DROP, (name,))


async def beat(questions: Questions, name: str) -> None:
    """Says a word that comes back through the slot, with the time of the database's clock."""
    await questions.asked(_BEAT_NOW, (PREFIX, f"{name} {_BEAT} "))


def beaten(content: bytes, name: str) -> float | None:
    """When a word of ours was said, by the database's clock; None if it is another."""
    said = content.decode("utf-8", "replace").split(" ")
    try:
        return float(said[2]) if said[:2] == [name, _BEAT] else None
    except (IndexError, ValueError):
        return None


def lost(content: bytes, name: str) -> str | None:
    """Why changes were lost, if the word says so of our slot."""
    said = content.decode("utf-8", "replace").split(" ", 2)
    return said[2] if len(said) == 3 and said[:2] == [name, _LOST] else None


async def _changed(questions: Questions, statement: str, parameters: tuple[str, ...]) -> bool:
    try:
        await questions.ask(statement, parameters, deadline=MAKE_S)
    except driver().Error as e:
        if failures.code(e) in {failures.EXISTS, failures.IN_USE, failures.UNDEFINED}:
            return False
        raise failures.of_server(e) from None
    return True
