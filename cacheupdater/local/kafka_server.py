"""A real Kafka of one's own: one broker or several, started on free ports, stopped, killed, frozen and brought back.

Tests use it instead of a mock. Brokers listen on 127.0.0.1 only and keep their data in a folder that `close` removes. They
live until `stop`, or until the process that started them ends, whichever is first (on Linux; see `children`, which also says
from which thread to start them). `kafka_jars.find` chooses the program.

Each broker has two doors. `bootstrap` speaks `protocol`. `admin` is always plain and has the super user's rights: through it
the brokers know each other and tests make topics. SASL, TLS and ACLs concern the first door alone:

    KafkaServer(protocol="SASL_PLAINTEXT", users={"shop": "secret"}, properties=kafka_properties.ACLS)
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cacheupdater.local import kafka_jars
from cacheupdater.local.kafka_broker import Broker
from cacheupdater.local.kafka_properties import SCRAM_KINDS, Ports, broker_ports, server_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HEAP = ("-Xms64m", "-Xmx384m")
_ATTEMPTS = 3  # another process may take a free port between our look and the broker's start


class KafkaServer:
    """One cluster. `brokers[0].kill()` and the like act on one broker; the cluster's own methods act on all.

    The brokers are their own controllers, so a cluster of three survives the loss of one; a cluster of two does not.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        protocol: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        java: Sequence[str] = (),
        found: kafka_jars.Found | None = None,
    ) -> None:
        """`properties` as in server.properties; `users` may log in with their passwords by SCRAM and PLAIN.

        `java` adds options of Java; `found` replaces the program that would be found.
        """
        self.found = found or kafka_jars.find()
        if self.found.program is None:
            raise FileNotFoundError(f"no Kafka: {self.found.why}")
        if brokers > 1 or properties or users or java or protocol != "PLAINTEXT":
            _ = self._jars
        self.brokers: list[Broker] = []
        self._count = brokers
        self._ports: list[Ports] = []
        self._properties = dict(properties or {})
        self._protocol = protocol
        self._users = dict(users or {})
        self._java = (*_HEAP, *java)
        self._folder: Path | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def admin(self) -> str:
        """The plain door, to make topics and grant rights, whatever `protocol` is."""
        return ",".join(f"127.0.0.1:{ports.admin}" for ports in self._ports)

    @property
    def _jars(self) -> Path:
        if self.found.program is None or not self.found.apache:
            raise FileNotFoundError(f"this needs Apache Kafka: {self.found.why}")
        return self.found.program

    @property
    def pid(self) -> int:
        return self.brokers[0].pid

    def start(self) -> Self:
        """Starts the brokers that are not running, the first time on fresh data. Returns when every broker answers."""
        if self.brokers:
            self._start_all()
            return self
        for attempt in range(_ATTEMPTS):
            self._prepare()
            try:
                self._start_all()
            except RuntimeError as e:
                self.close()
                if attempt == _ATTEMPTS - 1 or "in use" not in str(e):
                    raise
            else:
                break
        return self

    def _start_all(self) -> None:
        idle = [broker for broker in self.brokers if not broker.running]
        for broker in idle:
            broker.launch()
        for broker in idle:
            if not broker.answers():
                said = broker.said()
                self.kill()
                raise RuntimeError(f"{self.found.name} does not start; it says:\n{said}")

    def _prepare(self) -> None:
        """A folder, ports and a command line for each broker."""
        self._folder = Path(tempfile.mkdtemp(prefix="cacheupdater-kafka-"))
        atexit.register(self.close)
        self._ports = broker_ports(self._count)
        commands = self._apache(self._folder) if self.found.apache else [self._tansu()]
        self.brokers = [
            Broker(command, ports.client, self._folder / f"{number}.log", plain_port=ports.admin)
            for number, (command, ports) in enumerate(zip(commands, self._ports, strict=True), 1)
        ]

    def _tansu(self) -> list[str]:
        """tansu's command line. Its one door serves as both; it keeps everything in memory."""
        port = self._ports[0].client
        self._ports = [Ports(port, port, port)]
        listen = f"tcp://127.0.0.1:{port}"
        command = [str(self.found.program), "broker", "--listener-url", listen]
        return [*command, "--advertised-listener-url", listen, "--storage-engine", "memory://tansu/"]

    def _apache(self, folder: Path) -> list[list[str]]:
        """Formats the brokers' folders and returns their command lines."""
        cluster = _kafka_id()
        files = [folder / f"{number}.properties" for number in range(1, self._count + 1)]
        for number, file in enumerate(files, 1):
            said = server_properties(number, self._ports, self._protocol, self._users)
            said |= {"log.dirs": str(folder / str(number))} | self._properties
            file.write_text("".join(f"{name}={value}\n" for name, value in said.items()), "utf-8")
        with ThreadPoolExecutor(self._count) as threads:
            list(threads.map(self._format, repeat(cluster), count(1), files))
        java = [*kafka_jars.java(self._jars), *self._java]
        return [[*java, "kafka.Kafka", str(file)] for file in files]

    def _format(self, cluster: str, number: int, file: Path) -> None:
        """Makes a broker's folder. Kafka's tool takes a second. Without users the tool makes the same each time, so its record is kept."""
        home, kept = file.with_suffix(""), kafka_jars.first_record(self._jars)
        if not self._users and kept.exists():
            home.mkdir()
            shutil.copy(kept, home / "bootstrap.checkpoint")
            said = f"version=1\ncluster.id={cluster}\nnode.id={number}\ndirectory.id={_kafka_id()}\n"
            (home / "meta.properties").write_text(said, "utf-8")
            return
        scram = [
            f"--add-scram={kind}=[name={user},password={password}]"
            for user, password in self._users.items()
            for kind in SCRAM_KINDS
        ]
        arguments = ["format", "--cluster-id", cluster, "--config", str(file), *scram]
        kafka_jars.tool("kafka.tools.StorageTool", *arguments, folder=self._jars)
        if not self._users:
            draft = kept.with_name(f"{kept.name}-{file.parent.name}-{number}")
            shutil.copy(home / "bootstrap.checkpoint", draft)
            draft.replace(kept)

    def grant(self, user: str, *operations: str, topic: str | None = None, group: str | None = None) -> None:
        """Lets the user do operations, such as "Read", with this topic and this group. Needs the properties ACLS."""
        from cacheupdater.local import kafka_rights, kafka_topics  # noqa: PLC0415  a server alone needs no aiokafka

        wanted = kafka_rights.rights(user, operations, topic=topic, group=group)
        kafka_topics.done(kafka_rights.grant(self.admin, wanted))

    def limit_fetches(self, bytes_per_second: int) -> None:
        """A quota for each client."""
        everybody = ["--entity-type", "clients", "--entity-default"]
        quota = ["--alter", "--add-config", f"consumer_byte_rate={bytes_per_second}"]
        arguments = ["--bootstrap-server", self.admin, *everybody, *quota]
        kafka_jars.tool("kafka.admin.ConfigCommand", *arguments, folder=self._jars)

    def stop(self) -> None:
        with ThreadPoolExecutor(max(1, len(self.brokers))) as threads:  # at once: they wait for each other
            list(threads.map(Broker.stop, self.brokers))

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        for broker in self.brokers:
            broker.pause()

    def resume(self) -> None:
        for broker in self.brokers:
            broker.resume()

    def close(self) -> None:
        """Kills all brokers and removes their data."""
        self.kill()
        self.brokers = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _kafka_id() -> str:
    """A random id as Kafka spells them: 16 bytes, and no dash at the beginning."""
    return "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def quicken(found: kafka_jars.Found) -> None:
    """Halves the time of every later start: a broker that is started for this alone writes its loaded classes to a file.

    Done once per Java, in 15 s. It is optional; a test run calls it before its clock starts.
    """
    if found.program is None or not found.apache:
        return
    written = kafka_jars.classes(found.program)
    if written.exists():
        return
    with kafka_jars.locked(written.with_suffix(".lock")):
        if written.exists():
            return
        with tempfile.TemporaryDirectory(dir=written.parent) as scratch:
            draft = Path(scratch, written.name)
            with KafkaServer(java=[f"-XX:ArchiveClassesAtExit={draft}"], found=found) as server:
                server.stop()  # Java writes the file at an orderly end
            if draft.exists():
                draft.rename(written)
