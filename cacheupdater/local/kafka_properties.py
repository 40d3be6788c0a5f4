"""The settings of a test's brokers: quick, small, and with two doors each. Only `kafka_server` calls this.

Tests may add `ACLS`, `QUICK_RETENTION`, `QUICK_QUOTAS` and `mutual_tls`: `KafkaServer(properties=ACLS | QUICK_RETENTION)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.local.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # every client at the plain door
}
# by default Kafka looks for old records every five minutes, the first time after thirty seconds
QUICK_RETENTION = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "100",
}
# a quota's rate is taken over this time, instead of eleven seconds
QUICK_QUOTAS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}

_DEFAULTS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "ADMIN",
    "auto.create.topics.enable": "false",  # a topic that no test made is a mistake that must show
    "num.partitions": "3",
    "offsets.topic.num.partitions": "4",  # instead of 50: each is a folder to open at the start
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",  # instead of three seconds, which every test would wait
    "group.min.session.timeout.ms": "500",
    "broker.heartbeat.interval.ms": "300",
    # instead of nine seconds, in which a killed broker that comes back does not get its place
    "broker.session.timeout.ms": "2000",
    "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),  # instead of 128 MiB of memory
}
_REPLICATED = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_KINDS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class Ports(NamedTuple):
    client: int
    admin: int
    controller: int


def server_properties(
    number: int, everyone: Sequence[Ports], protocol: str, users: Mapping[str, str]
) -> dict[str, str]:
    """One broker's server.properties, without its folder. Brokers count from one."""
    client, admin, controller = everyone[number - 1]
    doors = f"CLIENT://127.0.0.1:{client},ADMIN://127.0.0.1:{admin}"
    voters = [f"{each}@127.0.0.1:{ports.controller}" for each, ports in enumerate(everyone, 1)]
    said = _DEFAULTS | dict.fromkeys(_REPLICATED, str(min(len(everyone), 3)))
    said |= {
        "node.id": str(number),
        "listeners": f"{doors},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": doors,
        "listener.security.protocol.map": f"CLIENT:{protocol},ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": ",".join(voters),
    }
    return said | _logins(users)


def mutual_tls(ca: Path, certificate: Path, key: Path) -> dict[str, str]:
    """For protocol="SSL" or "SASL_SSL", from PEM files: clients too must show a certificate that `ca` has signed."""
    whole = key.with_suffix(".both.pem")  # Kafka reads both from one file
    whole.write_bytes(key.read_bytes() + certificate.read_bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(whole),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "ssl.client.auth": "required",
    }


def _logins(users: Mapping[str, str]) -> dict[str, str]:
    if not users:
        return {}
    door = "listener.name.client"
    known = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    said = {f"{door}.{kind.lower()}.sasl.jaas.config": f"{_SCRAM} required;" for kind in SCRAM_KINDS}
    said[f"{door}.plain.sasl.jaas.config"] = f"{_PLAIN} required {known};"
    said["sasl.enabled.mechanisms"] = ",".join(("PLAIN", *SCRAM_KINDS))
    return said


def broker_ports(brokers: int) -> list[Ports]:
    numbers = free_ports(3 * brokers)
    return [Ports(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
