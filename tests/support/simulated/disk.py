"""The file of learned state: one per place at which updaters run, one after the other.

`SimState` is `ports.State` of one process. The real file promises all of a save or nothing. A disk may break that here: a save
is torn, or the file is gone, holds foreign bytes, or cannot be read or written. `threadless` runs the pipeline's threads as
tasks of the virtual loop.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from dataclasses import dataclass

from cacheupdater.errors import Faulty, Unavailable
from cacheupdater.price import memory
from cacheupdater.price.shell import remembering

SAVE_EVERY = 0.15
THREAD_S = 0.002  # before and after the work of a thread
ALIENS = (b"", b"#!/bin/sh\n", b"cacheupd\x02\x00" + b"\x00" * 60, b"cacheupd\x01\x00" + b"\xff" * 60)


@contextmanager
def hurried():
    """Makes saves frequent, and threads tasks that wait."""
    every, to_thread = remembering.SAVE_EVERY, asyncio.to_thread
    remembering.SAVE_EVERY, asyncio.to_thread = SAVE_EVERY, _in_the_loop
    try:
        yield
    finally:
        remembering.SAVE_EVERY, asyncio.to_thread = every, to_thread


async def _in_the_loop(function, *arguments):
    await asyncio.sleep(THREAD_S)
    result = function(*arguments)
    await asyncio.sleep(THREAD_S)
    return result


@dataclass
class Disk:
    """One path."""

    content: bytes | None = None
    saved: tuple = ()  # the pieces of the save in the content; empty if there is no whole save

    def put(self, content):
        """Another program writes the file."""
        self.content, self.saved = content, ()


class SimState:
    """One process' door to the disk."""

    def __init__(self, disk, process, world):
        self.found = ()  # the pieces of the save that was read
        self._disk = disk
        self._process = process
        self._world = world

    def read(self):
        self._process.check()
        if self._world.faults("state_unreadable"):
            raise Faulty("it cannot be read: Input/output error")
        self.found = self._disk.saved
        return self._disk.content

    def write(self, pieces):
        self._process.check()
        if self._world.faults("state_full"):
            raise Unavailable("no space left on the device")
        content = b"".join(pieces)
        self._disk.content, self._disk.saved = content, tuple(pieces)
        self._world.seen.note(self._process.name, "saves", len(content), "bytes")
        if self._world.faults("state_torn"):
            self._disk.put(content[: self._world.random.randrange(len(content))])

    def set_aside(self):
        if self._world.faults("state_full"):
            raise Unavailable("no space left on the device")
        self._disk.put(None)
        return "aside"


def price_in(pieces):
    """The source's price in a save, read from its header without our code; None if there is none."""
    return json.loads(pieces[2])["prices"].get("main", (None,))[0] if pieces else None


def keys_in(pieces, partitions, *, wall):
    """The keys in a save, by partition."""
    if not pieces:
        return {}
    parts = memory.read(b"".join(pieces), wall=wall).learned.split(partitions)
    return {number: frozenset(part.keys) for number, part in enumerate(parts)}
