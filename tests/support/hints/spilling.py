"""A collector's spill in a process that a test kills: it either spills changes or replays them, in virtual time.

Run as `python -m hints.spilling spill|replay FOLDER FIRST`. While it spills, it prints the number of each change whose frame was
acknowledged. While it replays, it prints the number of each change that the queue gets, before the queue acknowledges it; and `done` at the
end. It has no sockets and waits for nothing, so a kill -9 finds it in the middle of its files.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from cacheupdater.core.spilling import AWAY_S, Limits
from cacheupdater.testing import virtual_loop
from cacheupdater_client.protocol.wire import CHANGE
from cacheupdater_client.target import DRAIN_S, HURRY_S
from hints.collecting import World

KEYS = 20  # of a frame


def say(*numbers):
    os.write(1, b"".join(b"%d\n" % number for number in numbers))


async def spill(world, first):
    world.queue.away = True
    await asyncio.sleep(2 * AWAY_S)
    peer, said, number = world.gathered.newcomer(), first, first
    while True:
        world.hint(CHANGE, *(b"k%d" % each for each in range(number, number + KEYS)), peer=peer)
        number += KEYS
        await asyncio.sleep(HURRY_S)
        safe = number - KEYS * world.gathered.owed(peer)
        say(*range(said, safe))
        said = safe


async def replay(world, folder):
    turn = world.queue.turn

    def told(outbox, now, now_ms):
        before = len(world.queue.got)
        more = turn(outbox, now, now_ms)
        say(*(int(key[1:]) for _, pack in world.queue.got[before:] for key in pack.keys))
        return more

    world.queue.turn = told
    while list(folder.glob("*.segment")):  # noqa: ASYNC110  nobody could set an event
        await asyncio.sleep(DRAIN_S)
    os.write(1, b"done\n")


async def main(what, folder, first):
    world = World(folder, Limits(rate=5000))
    running = asyncio.ensure_future(world.forwarder.run(world, world.aside, world.wall_ms))
    await (spill(world, first) if what == "spill" else replay(world, folder))
    running.cancel()


if __name__ == "__main__":
    virtual_loop.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
