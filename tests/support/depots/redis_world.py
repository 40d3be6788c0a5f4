"""Streams in a real Redis or cluster, seen by several processes' connections. Time passes by making all sessions older."""

from __future__ import annotations

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.pipeline.notices import Notices
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import streams

SESSION = 30.0  # s: no test takes so long


class RedisWorld:
    """The streams `hints` of one server or cluster. `client` is redis-py's, for what no depot does."""

    def __init__(self, url, client, *, partitions=3, options=""):
        self.url = f"{url}?stream=hints&partitions={partitions}{options}"
        self.client = client
        self.observer = RecordingObserver()
        self.notices = Notices(lambda: 0.0)
        self._partitions = partitions
        self._depots = []

    async def start(self):
        return self

    def closed_depot(self):
        """A depot that is not opened yet."""
        depot = RedisDepot(streams.parse(self.url), observer=self.observer, notices=self.notices)
        self._depots.append(depot)
        return depot

    async def depot(self):
        depot = self.closed_depot()
        assert await depot.open() == self._partitions
        return depot

    async def pass_time(self, seconds):
        roster = streams.roster_key("hints")
        for name, entry in (await self.client.hgetall(roster)).items():
            if name.startswith(b"member:"):
                till, length = entry.split()
                aged = b"%d %s" % (int(till) - int(seconds * 1000), length)
                await self.client.hset(roster, name, aged)

    async def close(self):
        for depot in self._depots:
            await depot.close()
        await self.client.aclose()


async def own(depot, member, *partitions):
    """The epochs under which this member owns these partitions from now on."""
    await depot.renew(member, SESSION)
    return {gained.partition: gained.epoch for gained in await depot.claim(member, partitions)}
