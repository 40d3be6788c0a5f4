"""Kafka for tests: real brokers that the run starts itself, and a line at its end that says which.

`kafka` is one broker for the whole run, for all of xdist's workers too (KAFKA_BOOTSTRAP names another one to use instead).
`kafka_topic` and `new_topic` make topics on it that are deleted with the test. `own_kafka` may be stopped and killed. If Java
or Maven is missing, tansu replaces Apache Kafka; tests that need the real one ask for `needs_apache`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

FIXTURES = {"kafka", "kafka_topic", "new_topic", "own_kafka", "needs_apache"}
START_TIMEOUT_S = 90.0  # longer than a broker's own limit, whose error says more
KEEPER = Path(__file__).with_name("keeper.py")
_numbers = count(1)


class Kafka(NamedTuple):
    """The run's broker. It has no security, so one address serves all clients."""

    bootstrap: str
    pid: int | None  # None: not ours

    def url(self, topic, options=""):
        """`options` as in "?group=one"."""
        return f"kafka://{self.bootstrap}/{topic}{options}"


def folder_of_run(config):
    """The folder that all processes of this run share: a worker's temporary folder lies in that of the run."""
    base = config._tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(config, "workerinput") else base) / "kafka-of-the-run"
    folder.mkdir(exist_ok=True)
    return folder


def given():
    return os.environ.get("KAFKA_BOOTSTRAP")  # noqa: TID251  the documented way to bring one's own broker


def found():
    from cacheupdater.local import kafka_jars

    return kafka_jars.find()


def pytest_collection_finish(session):
    """Makes Kafka ready before any test's time is measured, and shows the progress: the first time can take a minute."""
    from cacheupdater.local.kafka_server import quicken

    config = session.config
    asked = any(FIXTURES & set(item.fixturenames) for item in session.items if hasattr(item, "fixturenames"))
    if not asked or config.option.collectonly:
        return
    with config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        which = str(found())
        quicken(found())
    if given():
        which = f"the broker at KAFKA_BOOTSTRAP; for brokers of a test's own {which}"
    (folder_of_run(config) / "which").write_text(which)


def pytest_terminal_summary(terminalreporter, config):
    if hasattr(config, "_tmp_path_factory"):
        which = folder_of_run(config) / "which"
        if which.exists():
            terminalreporter.write_line(f"kafka: {which.read_text()}")


@contextlib.contextmanager
def shared(folder):
    """The broker that all users of this folder share, from the first to the last."""
    from cacheupdater.local.kafka_jars import locked

    with (folder / "users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with locked(folder / "starting"):
            if not (folder / "broker").exists():
                _start_keeper(folder)
        bootstrap, pid = (folder / "broker").read_text().split()
        yield Kafka(bootstrap, int(pid))


def _start_keeper(folder):
    log = folder / "keeper.log"
    with log.open("wb") as said:
        keeper = subprocess.Popen(
            [sys.executable, str(KEEPER), str(folder)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},  # noqa: TID251  handed on as it is
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for the tests, whose end is the keeper's
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (folder / "broker").exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no Kafka for this run:\n{log.read_text()[-2000:]}")
        time.sleep(0.02)
    keeper.returncode = 0  # it ends after us, which is no leak to be warned of


@pytest.fixture(scope="session")
def _kafka_of_run(request):
    if given():
        yield Kafka(given(), None)
        return
    if found().program is None:
        pytest.skip(f"no Kafka: {found().why}")
    with shared(folder_of_run(request.config)) as kafka:
        yield kafka


@pytest.fixture
def kafka(_kafka_of_run):
    """The run's broker, for reading and writing, not for stopping."""
    return _kafka_of_run


@pytest.fixture
def new_topic(kafka):
    """Makes topics of this test's own. Returns a name: new_topic(partitions=1, config={"cleanup.policy": "compact"})."""
    from cacheupdater.local import kafka_topics

    made = []

    def make(**wanted):
        name = f"test-{os.getpid()}-{next(_numbers)}"
        kafka_topics.done(kafka_topics.create(kafka.bootstrap, name, **wanted))
        made.append(name)
        return name

    yield make
    for name in made:
        with contextlib.suppress(Exception):  # the test may have deleted it, and nobody reads it again
            kafka_topics.done(kafka_topics.delete(kafka.bootstrap, name))


@pytest.fixture
def kafka_topic(new_topic):
    """The name of an empty topic of three partitions."""
    return new_topic()


@pytest.fixture
def own_kafka():
    """A broker of this test's own, to stop, kill and freeze. tansu loses its data when it stops."""
    from cacheupdater.local import kafka_topics
    from cacheupdater.local.kafka_server import KafkaServer

    if found().program is None:
        pytest.skip(f"no Kafka: {found().why}")
    with KafkaServer() as server:
        kafka_topics.done(kafka_topics.coordinated(server.admin))
        yield server


@pytest.fixture(scope="session")
def needs_apache():
    """For features that tansu lacks: several brokers, logins, rights, data that outlives a restart. Ask for it first."""
    if not found().apache:
        pytest.skip(f"needs Apache Kafka: {found().why}")
