"""Our membership in a consumer group: the only module that uses aiokafka's consumer.

`adapters.queue_kafka` keeps a `GroupConsumer` for life, and `adapters.feed_debezium` makes one for each turn. It turns aiokafka's
exceptions into ours, and limits its waits, for aiokafka tries a commit or an offset for ever while a broker is away. It also
holds the few uses of private parts of aiokafka 0.14: the group's generation, a request to join again, the offsets of many
partitions at once, the topics of a cluster without a request to create them, and the client of the fetcher. It decides nothing,
and knows nothing of what the records hold.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka import errors as kafka
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.structs import OffsetAndMetadata

from cacheupdater import masking
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.kafka_group import settings
from cacheupdater_client.protocol import broker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

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
FENCED_INSTANCE_ID = 82
"""The broker's answer to a member that joins while another process has joined as the same instance.

aiokafka 0.14 does not know this code, and would join under its old member id again and again, for ever. It joins as a new member
once the code means an unknown member to it. The queue counts how often the group has removed us.
"""
kafka.kafka_errors.setdefault(FENCED_INSTANCE_ID, kafka.UnknownMemberIdError)


T = TypeVar("T")


class Record(Protocol):
    """What is used of aiokafka's record, which has no types."""

    offset: int
    key: bytes | None
    value: bytes | None


class OutOfRange(Exception):
    """The broker no longer has the offsets at which we read."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        super().__init__()
        self.partitions = tuple(partitions)


class Denied(Unavailable):
    """A right is missing. The process can only wait until somebody grants it."""


class MovedOn(Unavailable):
    """The group has moved on: a rebalance is under way, or has ended without us."""


class GroupConsumer:
    """One consumer of some topics, in its group."""

    def __init__(self, address: broker.Address, *, group: str | None, **how: object) -> None:
        """`how` has the arguments of AIOKafkaConsumer beside the address. Without a group it reads, and commits nothing."""
        self._by_token = "token_file" in address.options
        self._connected = False
        try:
            connection = broker.connection(address)
        except (OSError, ValueError) as e:
            raise Misconfigured(f"{address}: {masking.foreign(str(e))}") from e
        # a member's name begins with its client id, and people look for the pod of that name
        connection["client_id"] = f"{broker.CLIENT_ID}-{socket.gethostname()}-{os.getpid()}"
        self._consumer = AIOKafkaConsumer(group_id=group, **how, **connection)

    # --- life -------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect to a broker, without joining the group. It may be called again after it has raised Unavailable."""
        if self._connected:
            return
        try:
            await self._consumer.start()
        except (kafka.KafkaError, OSError) as e:
            raise Unavailable(_said(e)) from e
        self._connected = True

    @property
    def connected(self) -> bool:
        return self._connected

    def fetch_by(self, wrap: Callable[[object], object]) -> None:
        """Puts something between the fetcher and its client, before anything is fetched."""
        fetcher = self._consumer._fetcher  # noqa: SLF001  not published
        fetcher._client = wrap(fetcher._client)  # noqa: SLF001  the same

    def join(
        self,
        topics: Collection[str],
        *,
        revoked: Callable[[], Awaitable[None]],
        assigned: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        """Join the group. The group waits while `revoked` runs."""
        self._consumer.subscribe(list(topics), listener=_Listener(revoked, assigned))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions, without a group."""
        self._consumer.assign(list(partitions))

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
        await asyncio.wait([stopping, closing], timeout=settings.LET_GO)

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

    async def topics(self) -> Mapping[str, Collection[int]]:
        """The partitions of each topic that we may see."""
        # All topics are requested: a broker may create a topic that is requested by its name.
        try:
            cluster = await self._ask(self._consumer._client.fetch_all_metadata())  # noqa: SLF001
        except Unavailable as e:
            if not self._by_token:
                raise
            # aiokafka takes a refused token for an accepted one, and then gets no answer
            raise Unavailable(f"{e} (a token that they refuse looks like this)") from e
        return {topic: cluster.partitions_for_topic(topic) or () for topic in cluster.topics()}

    async def refresh(self) -> None:
        """Ask the brokers how many partitions our topics have now. Requests no other topics, which is cheap in a large cluster."""
        if not await self._ask(self._consumer._client.force_metadata_update()):  # noqa: SLF001
            raise Unavailable("no broker answered")

    def known(self, topic: str) -> int:
        """How many partitions the consumer knows."""
        return len(self._consumer.partitions_for_topic(topic) or ())

    # --- places -----------------------------------------------------------------------------------------

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of these partitions, without partitions for which none is committed."""
        found: dict[TopicPartition, int] = await self._ask(self._committed(partitions))
        return found

    async def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Sends one request for all partitions, and raises each of its errors.

        aiokafka 0.14 does not read the error of a whole answer. A coordinator that has just got the group, and is still loading
        it, looks to aiokafka like a group without commits. The whole topic would be read again, and commits would be set back.
        """
        asked: dict[str, list[int]] = {}
        for at in partitions:
            asked.setdefault(at.topic, []).append(at.partition)
        coordinator = self._consumer._coordinator  # noqa: SLF001  see above
        await coordinator.ensure_coordinator_known()
        request = OffsetFetchRequest(coordinator.group_id, list(asked.items()))
        answer = await coordinator._send_req(request)  # noqa: SLF001  as aiokafka sends it
        rows = [(topic, row) for topic, rows in answer.topics for row in rows]
        for code in (getattr(answer, "error_code", 0), *(code for _, (_, _, _, code) in rows)):
            if code == kafka.NotCoordinatorForGroupError.errno:
                coordinator.coordinator_dead()
            if code:
                raise kafka.for_code(code)
        return {
            TopicPartition(topic, partition): offset
            for topic, (partition, offset, _, _) in rows
            if offset >= 0
        }

    def led(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that have a leader now: a request for one without a leader would hold up the answers for all."""
        leader = self._consumer._client.cluster.leader_for_partition  # noqa: SLF001  not published
        return [at for at in partitions if leader(at) not in {None, -1}]

    async def firsts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = await self._ask(self._consumer.beginning_offsets(list(partitions)))
        return found

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = await self._ask(self._consumer.end_offsets(list(partitions)))
        return found

    async def position(self, at: TopicPartition) -> int:
        """The offset that the consumer reads next. It passes the markers of transactions without a record."""
        place: int = await self._ask(self._consumer.position(at))
        return place

    def seek(self, at: TopicPartition, offset: int) -> None:
        with suppress(kafka.IllegalStateError, AssertionError):  # the partition is not ours any more
            self._consumer.seek(at, offset)

    def pause(self, at: TopicPartition) -> None:
        with suppress(kafka.IllegalStateError, AssertionError):
            self._consumer.pause(at)

    def resume(self, at: TopicPartition) -> None:
        with suppress(kafka.IllegalStateError, AssertionError):
            self._consumer.resume(at)

    # --- records ----------------------------------------------------------------------------------------

    async def poll(self, seconds: float) -> Mapping[TopicPartition, Sequence[Record]]:
        """Records by partition; empty if none come for so long. Waits during a rebalance. Raises OutOfRange or Unavailable."""
        try:
            found: Mapping[TopicPartition, Sequence[Record]] = await self._consumer.getmany(
                timeout_ms=settings.ms(seconds)
            )
        except kafka.OffsetOutOfRangeError as e:
            raise OutOfRange(e.args[0]) from e
        except kafka.NoOffsetForPartitionError as e:
            raise OutOfRange([e.args[0]]) from e
        except DENIED as e:
            self._revive()
            raise Denied(_said(e)) from e
        except kafka.KafkaError as e:
            self._revive()
            raise Unavailable(_said(e)) from e
        return found

    def _revive(self) -> None:
        """Join again if the heartbeats have ended, for example because a right was missing for a moment.

        Without this, aiokafka would raise the same error at every poll, for ever.
        """
        beating = self._consumer._coordinator._heartbeat_task  # noqa: SLF001  see above
        if beating is not None and beating.done():
            self.rejoin()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets as the present member, or not at all. Raises MovedOn, Denied or Unavailable."""
        places = {at: OffsetAndMetadata(offset, "") for at, offset in offsets.items()}
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

    async def _ask(self, question: Awaitable[T]) -> T:
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
        self,
        revoked: Callable[[], Awaitable[None]],
        assigned: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        self._revoked = revoked
        self._assigned = assigned

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:  # noqa: ARG002  always all that we own
        await self._revoked()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._assigned(sorted(assigned))


def _said(error: Exception) -> str:
    """The text of an error, or its type."""
    if isinstance(error, TimeoutError):
        return "the brokers did not answer in time"
    return masking.foreign(str(error)) or type(error).__name__
