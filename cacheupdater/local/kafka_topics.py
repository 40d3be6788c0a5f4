"""Changes to topics, for tests: create and delete topics, cut off old records, add partitions.

Async functions over aiokafka's admin client, with one client per call. Each returns when every broker asked sees the change,
so the next line of a test may rely on it. `servers` is a server's `admin` or `bootstrap`, reached in plain text. `done` runs
one of them for code that has no event loop, or whose loop is running already.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import CoordinatorNotAvailableError, NotCoordinatorError, for_code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping

SETTLE_TIMEOUT_S = (
    45.0  # leaders are chosen in milliseconds, after a broker's death in seconds, on a busy machine in many
)
_POLL_S = 0.01
_END = -1  # Kafka's word for "up to the newest record"

T = TypeVar("T")


async def create(
    servers: str,
    topic: str,
    *,
    partitions: int = 3,
    replicas: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """A topic whose partitions all have a leader. `config` as in {"cleanup.policy": "compact"}."""
    async with admin_of(servers) as admin:
        new = NewTopic(topic, partitions, replicas, topic_configs=dict(config or {}))
        _check((await admin.create_topics([new])).topic_errors)
        await _until_led(admin, topic, partitions)


async def delete(servers: str, topic: str) -> None:
    async with admin_of(servers) as admin:
        _check((await admin.delete_topics([topic])).topic_error_codes)
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            while topic in await admin.list_topics():  # noqa: ASYNC110  a broker does not notify
                await asyncio.sleep(_POLL_S)


async def add_partitions(servers: str, topic: str, *, total: int) -> None:
    async with admin_of(servers) as admin:
        await admin.create_partitions({topic: NewPartitions(total)})
        await _until_led(admin, topic, total)


async def delete_records(servers: str, topic: str, before: Mapping[int, int] | None = None) -> dict[int, int]:
    """Cuts off records before the offset of each partition, or all without `before`. Returns the first offsets left."""
    async with admin_of(servers) as admin:
        if before is None:
            before = dict.fromkeys(await _leaders(admin, topic), _END)
        cut = {TopicPartition(topic, number): RecordsToDelete(offset) for number, offset in before.items()}
        left = await admin.delete_records(cut)
        return {partition.partition: offset for partition, offset in left.items()}


async def leaders(servers: str, topic: str) -> dict[int, int]:
    """The broker that leads each partition; -1 where none does."""
    async with admin_of(servers) as admin:
        return await _leaders(admin, topic)


async def coordinated(servers: str) -> None:
    """Returns when the brokers accept groups. The first group makes them create a topic, which can take some seconds."""
    async with admin_of(servers) as admin, asyncio.timeout(SETTLE_TIMEOUT_S):
        while True:
            with suppress(CoordinatorNotAvailableError, NotCoordinatorError):
                await admin.find_coordinator("first")
                return
            await asyncio.sleep(_POLL_S)


def done(doing: Coroutine[object, object, T]) -> T:
    """Runs a coroutine to its end in a thread with an event loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, doing).result()


@asynccontextmanager
async def admin_of(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client of these servers, within the block."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers.split(","))
    await admin.start()
    try:
        await _until_controlled(admin)
        yield admin
    finally:
        await admin.close()


async def _until_controlled(admin: AIOKafkaAdminClient) -> None:
    """A broker answers before it knows its controller, and aiokafka cannot change a topic without one."""
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        while (await admin.describe_cluster())["controller_id"] < 0:  # noqa: ASYNC110  a broker does not notify
            await asyncio.sleep(_POLL_S)


async def _until_led(admin: AIOKafkaAdminClient, topic: str, partitions: int) -> None:
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        while True:
            led = [leader for leader in (await _leaders(admin, topic)).values() if leader >= 0]
            if len(led) == partitions:
                return
            await asyncio.sleep(_POLL_S)


async def _leaders(admin: AIOKafkaAdminClient, topic: str) -> dict[int, int]:
    found = await admin.describe_topics([topic])
    return {each["partition"]: each["leader"] for each in found[0]["partitions"]}


def _check(answers: list[tuple[str, int, *tuple[object, ...]]]) -> None:
    """Raises on refusals. aiokafka returns them as numbers; newer brokers add a text."""
    for topic, code, *said in answers:
        if code:
            raise for_code(code)(f"{topic}: {' '.join(map(str, said))}")
