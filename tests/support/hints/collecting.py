"""A collector's forwarder, its clients and its queue in virtual time, for tests of the forwarder and of the spill."""

from __future__ import annotations

import asyncio
import sys

from cacheupdater.adapters.spill_files import SpillFiles
from cacheupdater.collector.forwarder import Forwarder
from cacheupdater.collector.gathered import Gathered
from cacheupdater.collector.spill import Spill
from cacheupdater.core.spilling import Limits
from cacheupdater.pipeline.notices import Notices
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.wire import Hello, decode_pack, encode_pack

BEGAN_MS = 1_700_000_000_000


class Queue:
    """A link to a queue under a test's control. It acknowledges what it got a turn before, as far as it is allowed to."""

    def __init__(self, hello=None):
        self.said = hello or Hello(1, [])
        self.connected, self.trouble = False, ""
        self.away = self.mute = False
        self.patience = sys.maxsize  # frames of a connection that it acknowledges
        self.got, self.turns = [], []
        self.kept = []  # packs that it has acknowledged
        self._sent = self._acked = 0
        self._flying = []  # packs of this connection that it has not

    def turn(self, outbox, now, now_ms):
        assert outbox.calls or self.connected
        self.turns.append(now)
        if self.away:
            self.close()
            self.trouble = "nobody listens"
            return False
        if not self.connected:
            self.connected, self.trouble, self._sent, self._acked = True, "", 0, 0
            self._flying = []
            outbox.greet(self.said)
        if not self.mute:
            self._acked = min(self._sent, self.patience)
            outbox.acknowledge(self._acked)
            left = self._sent - self._acked
            self.kept += self._flying[: len(self._flying) - left]
            self._flying = self._flying[len(self._flying) - left :]
        while frame := outbox.next_frame(now_ms):
            self._sent += 1
            self._flying.append(decode_pack(frame.pack))
            self.got.append((round(now, 3), self._flying[-1]))
        return False

    def close(self):
        self.connected = False

    def keys(self, kind):
        return [key for _, pack in self.got if pack.kind == kind for key in pack.keys]


class World:
    """A forwarder that runs, its clients and its queue."""

    def __init__(self, spill=None, limits=None, **queue):
        """`spill` is the directory of a spill."""
        self.observer, self.queue = RecordingObserver(), Queue(**queue)
        self.gathered = Gathered(self.observer, spills=spill is not None)
        self.notices = Notices(lambda: asyncio.get_running_loop().time())
        self.forwarder = Forwarder(
            self.gathered, self.queue, only=(), name="the queue", observer=self.observer, notices=self.notices
        )
        self.hellos, self.acknowledged_at = [], []
        if spill is not None:
            self.files = SpillFiles(str(spill))
            self.spill = Spill(
                self.files,
                limits or Limits(),
                self.gathered,
                observer=self.observer,
                notices=self.notices,
                now=asyncio.get_running_loop().time(),
            )
            self.forwarder.keep_on_disk(self.spill)

    def hello(self, hello):
        self.hellos.append(hello)

    def acknowledge(self):
        self.acknowledged_at.append(asyncio.get_running_loop().time())

    async def aside(self, work):
        return work()

    def hint(self, kind, *keys, peer=None, tokens=()):
        peer = peer or self.gathered.newcomer()
        assert self.gathered.offer(0, encode_pack(kind, 0, keys, tokens=tokens), peer)
        return peer

    @staticmethod
    def wall_ms():
        """A wall clock that goes with the loop's."""
        return BEGAN_MS + int(1000 * asyncio.get_running_loop().time())
