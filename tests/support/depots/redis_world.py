"""Streams in a real Redis or cluster, seen by several processes' connections. Time passes by making all sessions older."""

from __future__ import annotations

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.pipeline.notices import Notices
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import streams
from depots.world import World


class RedisWorld(World):
    """The streams `hints` of one server or cluster. `client` is redis-py's, for what no depot does."""

    def __init__(self, url, client, *, partitions=3, options=""):
        super().__init__(partitions)
        self.url = f"{url}?stream=hints&partitions={partitions}{options}"
        self.client = client
        self.observer = RecordingObserver()
        self.notices = Notices(lambda: 0.0)

    def _made(self):
        return RedisDepot(streams.parse(self.url), observer=self.observer, notices=self.notices)

    async def pass_time(self, seconds):
        roster = streams.roster_key("hints")
        for name, entry in (await self.client.hgetall(roster)).items():
            if name.startswith(b"member:"):
                till, length = entry.split()
                aged = b"%d %s" % (int(till) - int(seconds * 1000), length)
                await self.client.hset(roster, name, aged)

    async def close(self):
        await super().close()
        await self.client.aclose()
