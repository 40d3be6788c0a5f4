"""The waiting packs of the queue that a configuration names: opens them for a command, and says how far behind the updaters are.

`cacheupdater queue` calls these functions; `purge` beside this module throws waiting packs away. Nothing here joins a group or a
depot, and nothing is made or changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.collector.shared_queue import depot_of
from cacheupdater.config.queues import KafkaQueueConfig, SqlQueueConfig, StreamsQueueConfig
from cacheupdater.core.lanes import urgent_of
from cacheupdater.errors import Misconfigured
from cacheupdater.pipeline.untold import UNTOLD
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.config.queues import QueueConfig
    from cacheupdater.core.lanes import Lane
    from cacheupdater.depot_ports import Lag, Waiting
    from cacheupdater.ports import Message

TOGETHER = 50  # lanes whose oldest pack is read at once: at most 13 MiB
IN_MEMORY = (
    "hints of a memory:// queue wait in the updater's own memory, where no other process sees them:"
    " ask the updater at its admin address (`/metrics` has cacheupdater_pending, `cacheupdater freshness` the rest);"
    " a restart of the updater forgets them"
)


def waiting_in(queue: QueueConfig) -> Waiting:
    """The waiting packs of this queue; nothing is contacted yet. Raises Misconfigured."""
    if isinstance(queue, KafkaQueueConfig):
        from cacheupdater.adapters.queue_kafka.stored import packs  # noqa: PLC0415  aiokafka is an extra
        from cacheupdater.adapters.topic_kafka.waiting import TopicWaiting  # noqa: PLC0415  as above

        return TopicWaiting(queue.address, queue.group, unpack=packs)
    if isinstance(queue, StreamsQueueConfig | SqlQueueConfig):
        return depot_of(queue, observer=UNTOLD, notices=UNTOLD)
    raise Misconfigured(IN_MEMORY)


class Behind(NamedTuple):
    """How far behind one partition's owner is."""

    partition: int
    owner: str | None
    packs: int
    urgent: int | None
    """Packs of these with changes or misses, or that were put back. None if this queue does not keep them apart."""
    age: float | None
    """Seconds since its oldest pack was sent, by the sender's clock; None if the pack does not say."""


async def behind(queue: QueueConfig, now_ms: int) -> Sequence[Behind]:
    """Each partition of the queue, in order; none if nobody has made the queue yet."""
    waiting = waiting_in(queue)
    try:
        lags = await waiting.lag()
        since = await _since(waiting, [each for each in lags if each.packs])
    finally:
        await waiting.close()
    by_lane = {each.lane: each for each in lags}
    return [
        _behind(each, by_lane.get(urgent_of(each.lane)), since, now_ms) for each in lags if each.lane >= 0
    ]


def _behind(lag: Lag, urgent: Lag | None, since: Mapping[Lane, int], now_ms: int) -> Behind:
    packs = lag.packs + (urgent.packs if urgent else 0)
    sent = [since[lane] for lane in (lag.lane, urgent_of(lag.lane)) if lane in since]
    age = max(0.0, (now_ms - min(sent)) / 1000) if sent else None
    return Behind(lag.lane, lag.owner, packs, urgent.packs if urgent else None, age)


async def _since(waiting: Waiting, lags: Sequence[Lag]) -> Mapping[Lane, int]:
    """By lane, when its oldest waiting pack was sent."""
    since: dict[Lane, int] = {}
    for first in range(0, len(lags), TOGETHER):
        oldest = await waiting.read({each.lane: each.done for each in lags[first : first + TOGETHER]}, 1)
        since |= {lane: ms for lane, [pack] in oldest.items() if (ms := _sent_ms(pack))}
    return since


def _sent_ms(message: Message) -> int:
    """0 for bytes that are no pack, and for a pack whose sender knew no time."""
    try:
        return max(0, wire.decode_pack(message.payload).emitted_ms)
    except wire.Malformed:
        return 0
