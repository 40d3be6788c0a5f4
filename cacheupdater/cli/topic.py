"""`cacheupdater topic create`: makes the Kafka topic that the configuration names, for an operator.

No other command makes a topic. An existing topic is never changed; if it differs from the options, the differences are printed
(exit 78).
"""

from __future__ import annotations

import argparse
import logging
import sys
from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cacheupdater.adapters.topic_kafka import Made
    from cacheupdater_client.protocol.broker import Address

_PARTITIONS_MAX = 1024  # as for a memory queue; far more than there are updaters
_REPLICATION_MAX = 32
_RETENTION_LEAST_S = 60.0  # a restart of all updaters takes that long
_RETENTION_MOST_S = 30 * 86_400.0  # a longer retention is probably a wrong unit


def add_to(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], file: argparse.ArgumentParser
) -> None:
    parser = commands.add_parser(
        "topic", help="make the Kafka topic for hints", description="Manage the Kafka topic for hints."
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    text = (
        "Make the topic of `queue.url`. An existing topic is not changed: exit code 0 if it suits, 78 if not."
    )
    creating = actions.add_parser("create", parents=[file], help="make it", description=text)
    creating.add_argument(
        "--partitions", metavar="N", type=_whole(_PARTITIONS_MAX), help="how many (default: 12)"
    )
    creating.add_argument(
        "--replication",
        metavar="N",
        type=_whole(_REPLICATION_MAX),
        help="how many copies (default: the brokers')",
    )
    creating.add_argument(
        "--retention", metavar="TIME", type=_retention, help="how long hints are kept (default: 6h)"
    )
    creating.set_defaults(command=create)


def create(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    import asyncio

    from cacheupdater.adapters import topic_kafka
    from cacheupdater.cli.configured import configured
    from cacheupdater.config.queues import KafkaQueueConfig
    from cacheupdater.errors import Misconfigured

    queue = configured(args, environ).queue
    if not isinstance(queue, KafkaQueueConfig):
        raise Misconfigured(f"{args.config}: queue.url is no kafka:// address, so there is no topic to make")
    logging.getLogger().addHandler(logging.NullHandler())  # the error says what aiokafka would log
    made = asyncio.run(
        topic_kafka.create(
            queue.address,
            partitions=args.partitions,
            replication=args.replication,
            retention=args.retention,
        )
    )
    print("\n".join(_said(made, queue.address)))
    faults = [*made.topic.wrong, *made.differs]
    for fault in faults:
        print(f"cacheupdater: {fault}", file=sys.stderr)
    return exits.CONFIG if faults else exits.OK


def _said(made: Made, address: Address) -> Iterable[str]:
    yield f"{'made' if made.created else 'left as it is'}: {address.topic}, {made.topic}"
    for note in [*made.topic.away, *made.topic.notes]:
        yield f"note: {note}"


def _whole(most: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a number from 1 to {most}, not {text!r}")
        return int(text)

    return whole


def _retention(text: str) -> float:
    from cacheupdater.config.units import duration

    try:
        seconds = duration(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from e
    if not _RETENTION_LEAST_S <= seconds <= _RETENTION_MOST_S:
        raise argparse.ArgumentTypeError(f"must be between 1m and 30d, not {text!r}")
    return seconds
