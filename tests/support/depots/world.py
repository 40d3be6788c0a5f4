"""What the worlds of all real depots share: the depots of several processes at one address, which end with the world."""

from __future__ import annotations

SESSION = 30.0  # s: no test takes so long


class World:
    """`_made` gives another process' depot, not opened yet."""

    def __init__(self, partitions):
        self._partitions = partitions
        self._depots = []

    async def start(self):
        return self

    def closed_depot(self):
        """A depot that is not opened yet."""
        self._depots.append(self._made())
        return self._depots[-1]

    async def depot(self):
        depot = self.closed_depot()
        assert await depot.open() == self._partitions
        return depot

    async def close(self):
        for depot in self._depots:
            await depot.close()


async def own(depot, member, *partitions):
    """The epochs under which this member owns these partitions from now on."""
    await depot.renew(member, SESSION)
    return {gained.partition: gained.epoch for gained in await depot.claim(member, partitions)}
