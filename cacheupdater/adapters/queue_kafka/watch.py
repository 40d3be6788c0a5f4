"""Watches the consumer from outside: lag, added partitions, and silent stalls.

The queue starts one `Watch` when it joins the group. The watch asks the brokers itself. It does not rely on the consumer's
knowledge, for the consumer itself may have stopped (aiokafka issues 1037 and 847). `stall` decides whether the consumer is
stuck.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_kafka import settings
from cacheupdater.adapters.queue_kafka.member import Denied
from cacheupdater.adapters.queue_kafka.stall import Place, Sight, Stall
from cacheupdater.errors import Stuck, Unavailable
from cacheupdater.kafka_group import settings as of_group

if TYPE_CHECKING:
    from cacheupdater.adapters.queue_kafka.member import Member
    from cacheupdater.adapters.queue_kafka.ownership import Ownership
    from cacheupdater.ports import Observer, Troubles

log = logging.getLogger(__name__)

LOOK_EVERY = (
    5.0  # seconds: how old a lag on a dashboard may be; a look costs one small request to each broker
)
LOOKS = 4  # at least so many per session, if the session is short


class Watch:
    """The watch of one queue."""

    def __init__(
        self,
        member: Member,
        owned: Ownership,
        *,
        topic: str,
        session: float,
        observer: Observer,
        notices: Troubles,
    ) -> None:
        self.trouble: Unavailable | None = None  # the poller's latest error
        self.partitions = 0
        self._member = member
        self._owned = owned
        self._topic = topic
        self._observer = observer
        self._notices = notices
        self._every = min(LOOK_EVERY, session / LOOKS)
        self._stall = Stall(settings.patience(session))
        self._counted = (0, 0)  # a round of the group, and how many partitions the topic had in it
        self._stray_since: float | None = None

    async def run(self) -> None:
        """Runs until cancelled. Raises Stuck."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(self._every)
            why = self._stall.look(clock(), await self._look())
            if why is not None:
                raise Stuck(f"the Kafka consumer of {self._topic} is stuck: {why}")

    def count(self, partitions: int) -> None:
        """The topic has so many partitions."""
        if partitions > self.partitions > 0:
            log.info("topic %s has grown from %d to %d partitions", self._topic, self.partitions, partitions)
        self.partitions = partitions
        self._observer.level("partitions", partitions)

    async def _look(self) -> Sight:
        """What is seen now. A missing broker, topic or right is reported as no answer: then it is right to wait."""
        places: dict[int, Place] = {}
        wanting = f"a right on topic {self._topic} or its group" if isinstance(self.trouble, Denied) else ""
        try:
            if self._owned.open:
                places = await self._places()
            elif not await self._member.refresh():
                wanting = f"topic {self._topic}: it does not exist, or we may not see it"
            await self._compare()
        except Unavailable as e:
            wanting = f"the brokers of topic {self._topic}: {e}"
        self._say(wanting)
        trouble = str(self.trouble or "")
        return Sight(answers=not wanting, joined=self._owned.joined, places=places, trouble=trouble)

    def _say(self, wanting: str) -> None:
        """Report what is missing, at every look. The notices decide when it is logged."""
        if wanting:
            self._notices.trouble("queue_missing", "", f"waiting for {wanting}")
        else:
            self._notices.over("queue_missing", "")

    async def _places(self) -> dict[int, Place]:
        """The places of the partitions that are read. Reports their lags too."""
        places = {}
        for partition, end in (await self._member.ends(self._member.led(self._owned.open))).items():
            inbox = self._owned.inboxes[partition]
            if not inbox.open:
                continue  # the partition was taken from us meanwhile
            self._owned.ends_at(partition, end)
            self._observer.level("lag", max(0, end - inbox.committed), label=str(partition))
            if not inbox.held:
                places[partition] = Place(await self._member.position(partition), end)
        return places

    async def _compare(self) -> None:
        """Ask for a rebalance if the group's leader does not share out added partitions.

        Normally the leader sees added partitions and asks for a rebalance. But a static member that leads and is started again
        does not learn that it leads, so no member might ask. So every member asks, later than any leader would. A request
        without need costs one rebalance.
        """
        now, here = asyncio.get_running_loop().time(), self._owned.round
        if self._counted[0] != here:
            self._counted = (here, await self._member.refresh())
            self._stray_since = None
        known = self._member.known
        if known and known != self.partitions:
            self.count(known)
        if known in {0, self._counted[1]} or not self._owned.joined:
            self._stray_since = None
        elif self._stray_since is None:
            self._stray_since = now
        elif now - self._stray_since > of_group.METADATA_AGE + LOOK_EVERY:
            self._stray_since = None
            log.info("the added partitions of topic %s have no owners; asking for a rebalance", self._topic)
            self._member.rejoin()
