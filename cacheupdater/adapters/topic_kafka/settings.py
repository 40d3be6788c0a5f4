"""The settings that suit a topic for hints, and what differs in an existing one. Pure.

A hint is useful for minutes: the next read asks for the same value again, long before a day is over. So a topic keeps hints
for hours. It has more partitions than there will be updaters, for adding partitions later moves the keys. A hint is no state
of its key, so the topic must not be compacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater_client.protocol.wire import PACK_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PARTITIONS = 12  # divides evenly among 2, 3, 4, 6 and 12 updaters
RETENTION_S = (
    6 * 3600.0
)  # older hints are useless; updaters that were away for longer begin at the earliest hint that is left
LONG_S = 86_400.0  # kept longer than a day: allowed, and of no use
SHORT_S = 600.0  # kept shorter: a broken deployment of the updaters loses hints
# Kafka removes closed segments only, so hints may stay on the disk for a sixth of the retention longer
SEGMENTS = 6
SEGMENT_LEAST_S = 30.0
SEGMENT_BYTES = (
    128 * 1024 * 1024
)  # not Kafka's 1 GiB: a busy partition then frees its space in smaller pieces
PACK_ROOM = 1024  # bytes around one pack: a batch's head and the record's
MESSAGE_BYTES_LEAST = PACK_BYTES_MAX + PACK_ROOM
MESSAGE_BYTES = 1024 * 1024  # Kafka's default, in case these brokers have another
NAMES = ("cleanup.policy", "retention.ms", "max.message.bytes")
"""The settings that are checked."""


def wanted(retention: float) -> dict[str, str]:
    """The settings of a new topic that keeps hints for `retention` seconds."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(int(retention * 1000)),
        "segment.ms": str(int(max(SEGMENT_LEAST_S, retention / SEGMENTS) * 1000)),
        "segment.bytes": str(SEGMENT_BYTES),
        "max.message.bytes": str(MESSAGE_BYTES),
    }


def retention_of(said: Mapping[str, str]) -> float | None:
    """The retention in seconds; None: for ever."""
    ms = int(said["retention.ms"])
    return None if ms < 0 else ms / 1000


def wrong(said: Mapping[str, str]) -> Iterable[str]:
    """Settings that a person must change, for they would lose hints."""
    if "compact" in said["cleanup.policy"]:
        yield (
            f"cleanup.policy is {said['cleanup.policy']}, which removes hints that nobody has read;"
            " set it to delete"
        )
    if int(said["max.message.bytes"]) < MESSAGE_BYTES_LEAST:
        yield (
            f"max.message.bytes is {said['max.message.bytes']}, and a pack of hints may have"
            f" {MESSAGE_BYTES_LEAST}; set it to {MESSAGE_BYTES}"
        )


def odd(said: Mapping[str, str]) -> Iterable[str]:
    """Settings that work, and that an operator may want to change."""
    retention = retention_of(said)
    if retention is None or retention > LONG_S:
        yield f"hints are kept {spelled(retention)}, which costs disk and tells nothing; hours are enough"
    elif retention < SHORT_S:
        yield f"hints are kept only {spelled(retention)}: updaters that are away longer lose some"


def spelled(seconds: float | None) -> str:
    """A duration as people write it: `6h`, `90m`."""
    if seconds is None:
        return "for ever"
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
