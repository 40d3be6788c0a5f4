"""Our membership in a consumer group: the only module that uses aiokafka's consumer.

The queue makes one `Member` and keeps it for life. `Member` turns aiokafka's exceptions into ours, and limits its waits, for
aiokafka tries a commit or an offset for ever while a broker is away. It also holds the few uses of private parts of aiokafka
0.14: the group's generation, a request to join again, the offsets of many partitions at once, the topics of a cluster without
a request to create ours, and the client of the fetcher. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka import errors as kafka
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.structs import OffsetAndMetadata

from cacheupdater import masking
from cacheupdater.adapters.queue_kafka import settings
from cacheupdater.adapters.queue_kafka.parcels import Parcel, Sealed, parcel
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater_client.protocol import broker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

log = logging.getLogger(__name__)

# The group has moved on: the present owners read again what we wanted to commit.
MOVED_ON = (
    kafka.CommitFailedError,
    kafka.IllegalStateError,
    kafka.UnknownMemberIdError,
    kafka.IllegalGenerationError,
    kafka.RebalanceInProgressError,
)
DENIED = (kafka.TopicAuthorizationFailedError, kafka.GroupAuthorizationFailedError)


class OutOfRange(Exception):
    """The broker no longer has the offsets at which we read."""

    def __init__(self, partitions: Iterable[int]) -> None:
        super().__init__()
        self.partitions = tuple(partitions)


class Denied(Unavailable):
    """A right is missing. The process can only wait until somebody grants it."""


class MovedOn(Unavailable):
    """The group has moved on: a rebalance is under way, or has ended without us."""


class Member:
    """One consumer of one topic, in its group."""

    def __init__(self, address: broker.Address, *, group: str, session: float, instance: str | None) -> None:
        self._topic = address.topic
        self._by_token = "token_file" in address.options
        self._connected = False
        try:
            connection = broker.connection(address)
        except (OSError, ValueError) as e:
            raise Misconfigured(f"{address}: {masking.foreign(str(e))}") from e
        self._consumer = AIOKafkaConsumer(
            group_id=group,
            group_instance_id=instance,
            **settings.consumer(session),
            **connection,
        )

    # --- life -------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect to a broker, without joining the group. It may be called again after it has raised Unavailable."""
        if self._connected:
            return
        try:
            await self._consumer.start()
        except (kafka.KafkaError, OSError) as e:
            raise Unavailable(_said(e)) from e
        fetcher = self._consumer._fetcher  # noqa: SLF001  nothing has been fetched yet, for no topic is subscribed
        fetcher._client = Sealed(fetcher._client)  # noqa: SLF001  see `parcels`
        self._connected = True

    def join(
        self, *, revoked: Callable[[], Awaitable[None]], assigned: Callable[[Sequence[int]], None]
    ) -> None:
        """Join the group. The group waits while `revoked` runs."""
        self._consumer.subscribe([self._topic], listener=_Listener(revoked, assigned))

    async def close(self) -> None:
        """Leave the group, if the brokers answer. A static member does not leave: its partitions wait for its return."""
        stopping = asyncio.ensure_future(self._consumer.stop())
        await asyncio.wait([stopping], timeout=settings.CLOSE_WITHIN)
        if stopping.done() and not stopping.cancelled() and stopping.exception() is None:
            return
        # `stop` hangs, or was cancelled by a task that it has cancelled itself (its fetcher, while a broker is away).
        log.warning("the group could not be left properly; the end of the session will end our membership")
        stopping.cancel()
        closing = asyncio.ensure_future(self._consumer._client.close())  # noqa: SLF001  stop() has not come that far
        await asyncio.wait([stopping, closing], timeout=settings.AGAIN)

    # --- the group --------------------------------------------------------------------------------------

    @property
    def forgotten(self) -> bool:
        """Whether the group has removed us: our session has ended, or another process has joined under our name."""
        return self._membership[0] < 0

    @property
    def _membership(self) -> tuple[int, str]:
        """The group's generation and our member id. The generation is negative while we are not a member."""
        coordinator = self._consumer._coordinator  # noqa: SLF001  aiokafka issue 1040: not published
        return coordinator.generation, coordinator.member_id

    def rejoin(self) -> None:
        """Ask the group for a rebalance."""
        self._consumer._coordinator.request_rejoin()  # noqa: SLF001  a new subscription would void the commits of the hand-over

    async def partitions(self) -> int:
        """How many partitions the topic has; 0 if it does not exist, or if we may not see it."""
        # All topics are requested: a broker may create a topic that is requested by its name.
        try:
            cluster = await self._ask(self._consumer._client.fetch_all_metadata())  # noqa: SLF001
        except Unavailable as e:
            if not self._by_token:
                raise
            # aiokafka takes a refused token for an accepted one, and then gets no answer
            raise Unavailable(f"{e} (a token that they refuse looks like this)") from e
        return len(cluster.partitions_for_topic(self._topic) or ())

    async def refresh(self) -> int:
        """How many partitions the topic has now, by the brokers. Requests this topic only, which is cheap in a large cluster."""
        if not await self._ask(self._consumer._client.force_metadata_update()):  # noqa: SLF001
            raise Unavailable("no broker answered")
        return self.known

    @property
    def known(self) -> int:
        """How many partitions the consumer knows."""
        return len(self._consumer.partitions_for_topic(self._topic) or ())

    # --- places -----------------------------------------------------------------------------------------

    async def committed(self, partitions: Iterable[int]) -> dict[int, int]:
        """The committed offsets of these partitions, without partitions for which none is committed."""
        found: dict[int, int] = await self._ask(self._committed(list(partitions)))
        return found

    async def _committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """Sends one request for all partitions, and raises each of its errors.

        aiokafka 0.14 does not read the error of a whole answer. A coordinator that has just got the group, and is still loading
        it, looks to aiokafka like a group without commits. The whole topic would be read again, and commits would be set back.
        """
        coordinator = self._consumer._coordinator  # noqa: SLF001  see above
        await coordinator.ensure_coordinator_known()
        request = OffsetFetchRequest(coordinator.group_id, [(self._topic, partitions)])
        answer = await coordinator._send_req(request)  # noqa: SLF001  as aiokafka sends it
        rows = [row for _, rows in answer.topics for row in rows]
        for code in (getattr(answer, "error_code", 0), *(code for _, _, _, code in rows)):
            if code == kafka.NotCoordinatorForGroupError.errno:
                coordinator.coordinator_dead()
            if code:
                raise kafka.for_code(code)
        return {partition: offset for partition, offset, _, _ in rows if offset >= 0}

    def led(self, partitions: Iterable[int]) -> list[int]:
        """The partitions that have a leader now: a request for one without a leader would hold up the answers for all."""
        leader = self._consumer._client.cluster.leader_for_partition  # noqa: SLF001  not published
        return [partition for partition in partitions if leader(self._at(partition)) not in {None, -1}]

    async def firsts(self, partitions: Iterable[int]) -> dict[int, int]:
        found = await self._ask(self._consumer.beginning_offsets([self._at(each) for each in partitions]))
        return {at.partition: offset for at, offset in found.items()}

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        found = await self._ask(self._consumer.end_offsets([self._at(each) for each in partitions]))
        return {at.partition: offset for at, offset in found.items()}

    async def position(self, partition: int) -> int:
        """The offset that the consumer reads next. It passes the markers of transactions without a record."""
        place: int = await self._ask(self._consumer.position(self._at(partition)))
        return place

    def seek(self, partition: int, offset: int) -> None:
        with suppress(kafka.IllegalStateError, AssertionError):  # the partition is not ours any more
            self._consumer.seek(self._at(partition), offset)

    def pause(self, partition: int) -> None:
        with suppress(kafka.IllegalStateError, AssertionError):
            self._consumer.pause(self._at(partition))

    def resume(self, partition: int) -> None:
        with suppress(kafka.IllegalStateError, AssertionError):
            self._consumer.resume(self._at(partition))

    # --- packs ------------------------------------------------------------------------------------------

    async def poll(self) -> Mapping[int, Sequence[Parcel]]:
        """Parcels by partition; empty if none come for a while. Waits during a rebalance. Raises OutOfRange or Unavailable."""
        try:
            found = await self._consumer.getmany(timeout_ms=settings.ms(settings.POLL_WAIT))
        except kafka.OffsetOutOfRangeError as e:
            raise OutOfRange(at.partition for at in e.args[0]) from e
        except kafka.NoOffsetForPartitionError as e:
            raise OutOfRange([e.args[0].partition]) from e
        except DENIED as e:
            self._revive()
            raise Denied(_said(e)) from e
        except kafka.KafkaError as e:
            self._revive()
            raise Unavailable(_said(e)) from e
        return {at.partition: list(map(parcel, records)) for at, records in found.items()}

    def _revive(self) -> None:
        """Join again if the heartbeats have ended, for example because a right was missing for a moment.

        Without this, aiokafka would raise the same error at every poll, for ever.
        """
        beating = self._consumer._coordinator._heartbeat_task  # noqa: SLF001  see above
        if beating is not None and beating.done():
            self.rejoin()

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit these offsets as the present member, or not at all. Raises MovedOn, Denied or Unavailable."""
        places = {self._at(partition): OffsetAndMetadata(offset, "") for partition, offset in offsets.items()}
        try:
            async with asyncio.timeout(settings.COMMIT_WITHIN):
                await self._put(places, self._membership)
        except MOVED_ON as e:
            raise MovedOn(_said(e)) from e
        except DENIED as e:
            raise Denied(_said(e)) from e
        except (kafka.KafkaError, TimeoutError) as e:
            raise Unavailable(_said(e)) from e

    async def _put(self, places: Mapping[TopicPartition, OffsetAndMetadata], ours: tuple[int, str]) -> None:
        """Tries the commit until it succeeds, but only as this member of this generation.

        aiokafka's own `commit` retries under a new membership too. An updater that was frozen, and has joined again, would then
        set back partitions that others own. There is no `await` between the check of the membership and the request.
        """
        coordinator = self._consumer._coordinator  # noqa: SLF001  see above
        while not self.forgotten:
            await coordinator.ensure_coordinator_known()  # aiokafka does not look for it during a hand-over
            if self._membership != ours:
                break
            try:
                await coordinator._do_commit_offsets(None, places)  # noqa: SLF001  one request
            except kafka.KafkaError as e:
                if not e.retriable:
                    raise
                await asyncio.sleep(settings.RETRY)
            else:
                return
        raise kafka.IllegalGenerationError

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    async def _ask(self, question: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(settings.ANSWER_WITHIN):
                return await question
        except DENIED as e:
            raise Denied(_said(e)) from e
        except (kafka.KafkaError, TimeoutError) as e:
            raise Unavailable(_said(e)) from e


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """The listener that aiokafka's coordinator calls. The coordinator would only log our exceptions."""

    def __init__(
        self, revoked: Callable[[], Awaitable[None]], assigned: Callable[[Sequence[int]], None]
    ) -> None:
        self._revoked = revoked
        self._assigned = assigned

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:  # noqa: ARG002  always all that we own
        await self._revoked()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._assigned(sorted(at.partition for at in assigned))


def _said(error: Exception) -> str:
    """The text of an error, or its type: timeouts have no text."""
    return masking.foreign(str(error)) or type(error).__name__
