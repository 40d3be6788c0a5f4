"""Inspects a Kafka topic for an operator (does it exist, does it suit hints, may we read it?), and creates one.

`cacheupdater check --connect` calls `inspect`, and `unreadable` for the topics of a feed; `cacheupdater topic create` calls `create`. No other part of the updater
makes a topic. Each call has its own connections to the cluster (`cluster`), for a limited time. `settings` decides what suits
hints. The checks change nothing: the record that they read stays, their heartbeat is of a member that does not exist, and
they ask for a topic in a way that never makes it.

Not done here: changes to an existing topic, and the rights of clients that write.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidReplicationFactorError,
    LeaderNotAvailableError,
    NoError,
    NotControllerError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest

from cacheupdater.adapters.topic_kafka import rights, settings
from cacheupdater.adapters.topic_kafka.cluster import reached
from cacheupdater.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cacheupdater.adapters.topic_kafka.cluster import Cluster
    from cacheupdater_client.protocol.broker import Address

INSPECT_S = 20.0  # for all requests of one inspection; each request has its own limit too
CREATE_S = 30.0  # for all requests, the creation included
SETTLE_S = (
    10.0  # until a new topic has its leaders, and a new cluster has the topic with the offsets of its groups
)
POLL_S = 0.1  # between two requests while a change is expected
BROKERS_DECIDE = -1  # Kafka's number for the brokers' default
REPLICAS_MOST = 3  # if the brokers have no default
_NO_LEADER = -1

_Error: TypeAlias = Any
"""A class of aiokafka's errors, which has no types."""


class Topic(NamedTuple):
    """A topic as it is, and the findings about it."""

    partitions: int
    replicas: int
    said: Mapping[str, str]
    """Its settings, by Kafka's names; empty if we may not see them."""
    wrong: Sequence[str]
    """Findings for which a person must change something."""
    away: Sequence[str]
    """Findings that may pass by themselves."""
    notes: Sequence[str]
    """Findings that are worth knowing, though everything works."""

    @property
    def kept(self) -> str:
        """How long the topic keeps hints; empty if we may not see it."""
        return settings.spelled(settings.retention_of(self.said)) if self.said else ""

    def __str__(self) -> str:
        kept = f", kept {self.kept}" if self.said else ""
        return f"{_counted(self.partitions, 'partition')}, {_counted(self.replicas, 'replica')}{kept}"


class Made(NamedTuple):
    """What `create` did, and the topic as it is now."""

    created: bool
    topic: Topic
    differs: Sequence[str]
    """How a topic that existed already differs from the request."""


async def inspect(address: Address, group: str) -> Topic:
    """The topic, and all findings about it for updaters of this group.

    Raises Misconfigured or Unavailable if the topic cannot be inspected.
    """
    try:
        async with asyncio.timeout(INSPECT_S), reached(address) as cluster:
            topic, leaders = await _looked_at(cluster, address.topic)
            refusals = [await rights.read(cluster, address.topic, leaders), await rights.join(cluster, group)]
    except TimeoutError as e:
        raise Unavailable(f"the brokers of {address} did not answer within {INSPECT_S:g} s") from e
    return topic._replace(
        wrong=[*topic.wrong, *(str(each) for each in refusals if isinstance(each, Misconfigured))],
        away=[*topic.away, *(str(each) for each in refusals if isinstance(each, Unavailable))],
        notes=[*topic.notes, *cluster.silent],
    )


async def unreadable(address: Address, topics: Collection[str], group: str) -> Sequence[str]:
    """Why members of this group could not read these topics, which exist; nothing if they can. Raises as `inspect`."""
    found: list[Misconfigured | Unavailable | None] = []
    try:
        async with asyncio.timeout(INSPECT_S), reached(address) as cluster:
            for topic in sorted(topics):
                leaders = _led(await described(cluster, topic) or ())
                found.append(await rights.read(cluster, topic, leaders))
            found.append(await rights.join(cluster, group))
    except TimeoutError as e:
        raise Unavailable(f"the brokers of {address} did not answer within {INSPECT_S:g} s") from e
    return [str(each) for each in found if each is not None]


async def create(
    address: Address,
    *,
    partitions: int | None = None,
    replication: int | None = None,
    retention: float | None = None,
) -> Made:
    """Makes the topic if it does not exist. None stands for the usual number, and for any number of an existing topic."""
    try:
        async with asyncio.timeout(CREATE_S), reached(address) as cluster:
            created = False
            if await described(cluster, address.topic) is None:
                created = await _made(
                    cluster,
                    address.topic,
                    partitions=partitions or settings.PARTITIONS,
                    replication=replication,
                    config=settings.wanted(retention or settings.RETENTION_S),
                )
            topic, _ = await _looked_at(cluster, address.topic)
    except TimeoutError as e:
        raise Unavailable(f"the brokers of {address} did not answer within {CREATE_S:g} s") from e
    return Made(created, topic, _differences(topic, partitions, replication, retention))


def _differences(
    topic: Topic, partitions: int | None, replication: int | None, retention: float | None
) -> list[str]:
    """The differences between the request and the topic."""
    asked_for = settings.spelled(retention) if retention is not None else None
    kinds = [
        ("partitions", partitions, topic.partitions),
        ("replication", replication, topic.replicas),
        ("retention", asked_for, topic.kept or asked_for),
    ]
    return [
        f"{name} is {found}, and not {asked} as requested"
        for name, asked, found in kinds
        if asked is not None and asked != found
    ]


# --- questions --------------------------------------------------------------------------------------------------


async def described(cluster: Cluster, name: str) -> Sequence[tuple[int, int, int, int]] | None:
    """For each partition: its number, its leader, how many replicas it has and how many are in step. None: no such topic."""
    # the admin of aiokafka asks in a way that makes the topic, if the brokers are configured to make topics on demand
    answer = await cluster.ask(MetadataRequest([name], allow_auto_topic_creation=False))
    [found] = answer.to_object()["topics"]
    error = for_code(found["error_code"])
    if error is UnknownTopicOrPartitionError:
        return None
    if error is TopicAuthorizationFailedError:
        raise Misconfigured(
            f"this user may not see the topic {name}, whether it exists or not: allow Read and Describe on it"
        )
    if error not in {NoError, LeaderNotAvailableError}:
        raise Unavailable(f"the brokers cannot describe the topic {name}: {error.description}")
    return [
        (each["partition"], each["leader"], len(each["replicas"]), len(each["isr"]))
        for each in found["partitions"]
    ]


async def _looked_at(cluster: Cluster, name: str) -> tuple[Topic, Mapping[int, int]]:
    """The topic, without the findings about rights; and the leader of each partition that has one."""
    found = await described(cluster, name)
    if found is None:
        raise Misconfigured(f"there is no topic {name}: `cacheupdater topic create` makes it")
    said = await _said(cluster, name)
    leaders = _led(found)
    replicas = min((replicas for _, _, replicas, _ in found), default=0)
    behind = sum(in_step < replicas for _, _, replicas, in_step in found)
    away, notes = [], []
    if len(leaders) < len(found):
        away.append(
            f"{len(found) - len(leaders)} of {len(found)} partitions have no leader: their brokers are down"
        )
    if behind:
        notes.append(f"{behind} of {len(found)} partitions have replicas that lag behind or are down")
    if replicas == 1 and cluster.brokers > 1:
        notes.append("it has one replica: while that broker is down, hints wait in the clients and then drop")
    if said is None:
        notes.append("its settings are not checked: that needs DescribeConfigs on the topic")
    else:
        notes += settings.odd(said)
    wrong = list(settings.wrong(said)) if said else []
    return Topic(len(found), replicas, said or {}, wrong, away, notes), leaders


def _led(found: Sequence[tuple[int, int, int, int]]) -> Mapping[int, int]:
    """The leader of each partition that has one."""
    return {number: leader for number, leader, _, _ in found if leader != _NO_LEADER}


async def _said(cluster: Cluster, name: str) -> Mapping[str, str] | None:
    """The settings that matter; None if we may not see them."""
    asked = [(ConfigResourceType.TOPIC, name, list(settings.NAMES))]
    try:
        answer = await cluster.ask(DescribeConfigsRequest(asked))
    except Misconfigured:  # brokers that imitate Kafka may not know this request
        return None
    [(code, _, _, _, entries)] = answer.resources
    said = {entry[0]: entry[1] for entry in entries}
    return said if code == 0 and all(name in said for name in settings.NAMES) else None


async def _made(
    cluster: Cluster, name: str, *, partitions: int, replication: int | None, config: Mapping[str, str]
) -> bool:
    """Makes the topic and waits for its leaders. False: somebody else has just made it."""
    wanted = [BROKERS_DECIDE, min(REPLICAS_MOST, cluster.brokers)] if replication is None else [replication]
    for replicas in wanted:
        error, why = await _asked_for(cluster, (name, partitions, replicas, [], list(config.items())))
        if error is not InvalidReplicationFactorError:
            break
    if error is TopicAlreadyExistsError:
        return False
    if error in {TopicAuthorizationFailedError, ClusterAuthorizationFailedError}:
        raise Misconfigured(
            f"this user may not make the topic {name}: allow Create on it, or let a user with this right make it"
        )
    if error is NotControllerError:
        raise Unavailable("the cluster is choosing a controller; try again")
    if error is not NoError:
        raise Misconfigured(f"the brokers refuse the topic {name}: {why or error.description}")
    async with asyncio.timeout(SETTLE_S):
        while not _all_led(await described(cluster, name)):  # noqa: ASYNC110  the brokers send no event
            await asyncio.sleep(POLL_S)
    return True


async def _asked_for(
    cluster: Cluster, new: tuple[str, int, int, list[object], list[tuple[str, str]]]
) -> tuple[_Error, str]:
    """The brokers' answer to the request for the topic: the error, and their words."""
    answer = await cluster.ask(
        CreateTopicsRequest([new], int(SETTLE_S * 1000), False), broker=cluster.controller()
    )
    [(_, code, *why)] = answer.topic_errors
    return for_code(code), str(why[0] or "") if why else ""


def _all_led(found: Sequence[tuple[int, int, int, int]] | None) -> bool:
    return found is not None and all(leader != _NO_LEADER for _, leader, _, _ in found)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
