"""Runs one suite on both sides at the same time: redis-py as it is ("stock"), and with our classes in its place ("ours").

Each side has servers of its own: a Redis, and another under three sentinels; or a cluster of six nodes. Both sides run together,
so that both see the same load. Tests that fail on both sides run again in turn, on the ports that the suite expects; so do tests
whose outcome differs. The output of each side goes to a log beside its outcomes. The suite's own timeout ends most tests that hang. If pytest itself hangs or dies in a test, another pytest runs the
tests that are left.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from cacheupdater.local.children import dying_with_us
from cacheupdater.local.redis_cluster import RedisCluster
from cacheupdater.local.redis_sentinel import RedisSentinels
from cacheupdater.local.redis_server import RedisServer
from compat.recording import UNFINISHED, outcomes_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compat.suite import Suite

SUPPORT = Path(__file__).parents[1]
STOCK, OURS = "stock", "ours"
SERVICE = "redis-py-test"  # the suite's name for the primary that the sentinels watch
PORT, SECOND_PORT, CLUSTER_PORT = (
    6379,
    6380,
    16379,
)  # where some tests look for servers, whatever they are told
RUN_TIMEOUT_S = 3600  # of one side; a quiet machine needs some minutes
STUCK_S = 120  # without a test that begins or ends; the suite gives a test 30 s
BEGIN_S = 300  # until the first test begins: pytest imports the whole suite before
STARTS_MAX = 20  # of pytest, in one run: one more for each test in which pytest hangs, dies or fails itself
TOLD_EVERY_S = 30
_DUMP_S = 5  # to write where each thread is, before the kill
_POLL_S = 0.2
_DONE = {0, 1, 5}  # pytest's exit codes for a run that has come to its end; 5: no test was chosen
# what needs servers or programs that are not here: modules, TLS, Redis Enterprise, a proxy
_AWAY = "not redismod and not ssl and not cp_integration and not multidb_integration"
_IGNORED = ("--ignore-glob=*test_scenario*", "--ignore-glob=*cluster_maint_notifications*")


class Topology(NamedTuple):
    """Which tests run, and against what."""

    name: str
    options: tuple[str, ...]
    replaces: str  # see compat.replacing


# The tests of cluster clients patch `redis.Redis` to reach the clients of single nodes, which a cluster client makes for itself.
# These are redis-py's own on both sides. So a run replaces the classes that its topology tests, and no others.
STANDALONE = Topology(
    "standalone", ("-m", f"not onlycluster and {_AWAY}", *_IGNORED, "--ignore-glob=*test_cluster*"), "single"
)
CLUSTER = Topology("cluster", ("-m", f"not onlynoncluster and {_AWAY}", *_IGNORED), "cluster")


class Choice(NamedTuple):
    """Which tests run; all if it is empty."""

    paths: Sequence[str] = ()
    names: Sequence[str] = ()
    again: bool = False

    @classmethod
    def of(cls, names: Sequence[str], *, whole: bool) -> Self:
        """These tests again: alone, or together with all tests of their files."""
        return cls(sorted({name.partition("::")[0] for name in names}), () if whole else names, again=True)

    def __str__(self) -> str:
        tests = f"{len(self.names)} tests" if self.names else f"{len(self.paths)} files"
        return f"{tests} again" if self.again else "all"


EVERYTHING = Choice()


class Outcomes(NamedTuple):
    """What one side has done."""

    by_test: Mapping[str, str]  # passed, failed, skipped or unfinished
    hints: Counter[str]  # counts of our client; empty for stock

    def updated(self, later: Outcomes) -> Outcomes:
        """The same, but with the later outcome of each test that has one."""
        return Outcomes({**self.by_test, **later.by_test}, self.hints + later.hints)


class Run:
    """One side of one topology, while it runs."""

    def __init__(self, suite: Suite, topology: Topology, side: str, choice: Choice) -> None:
        self.side = side
        self._suite = suite
        self._topology = topology
        self._choice = choice
        again = "-again" if choice.again else ""  # the log of the first run stays
        base = suite.folder.parent / f"{topology.name}-{side}{again}"
        self._outcomes, self._hints = base.with_suffix(".jsonl"), base.with_suffix(".hints")
        self._log, self._chosen = base.with_suffix(".log"), base.with_suffix(".tests")
        self._counts: Counter[str] = Counter()
        self._starts = 0

    def __enter__(self) -> Self:
        for old in (self._outcomes, self._hints, self._log):
            old.unlink(missing_ok=True)
        self._chosen.write_text("\n".join(self._choice.names), "utf-8")
        with ExitStack() as stack:
            servers = _servers(stack, self._topology, usual=self._choice.again)
            self._command = [*self._options(), *servers, *(self._choice.paths or ["tests"])]
            self._start()
            self._servers = stack.pop_all()
        return self

    def _start(self) -> None:
        self._starts += 1
        self._heard, self._size = time.monotonic(), self._written()
        self._size_at_start = self._size
        self._patience_s = BEGIN_S
        environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "PYTHONHASHSEED": "0"}  # noqa: TID251  handed on to a child
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_us(self._command),
                cwd=self._suite.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _options(self) -> list[str]:
        command = [str(self._suite.python), "-m", "pytest", "-p", "compat.recording"]
        # Python's own tracebacks: for the others pytest parses the sources, and after some failures Python 3.11 cannot
        command += [f"--outcomes={self._outcomes}", "-q", "--tb=native", "-p", "no:cacheprovider"]
        command += self._topology.options
        if self.side == OURS:
            command += ["-p", "compat.replacing", f"--hints={self._hints}"]
            command += [f"--replaces={self._topology.replaces}"]
        if self._choice.names:
            command += [f"--chosen={self._chosen}"]
        return command

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._servers.close()

    def goes_on(self) -> bool:
        """Whether there are tests left. Ends a pytest that hangs, and starts another after one that hung or died."""
        if self._process.poll() is None and not self._is_stuck():
            return True
        if self._process.poll() is None:
            self._end()
        self._count()
        last = next(reversed(outcomes_in(self._outcomes).values()), None)
        done = self._process.returncode in _DONE and last != UNFINISHED  # a test may end pytest with any code
        if done or self._written() == self._size_at_start or self._starts == STARTS_MAX:
            return False
        self._start()
        return True

    def _is_stuck(self) -> bool:
        size = self._written()
        if size != self._size:
            self._size, self._heard, self._patience_s = size, time.monotonic(), STUCK_S
        return time.monotonic() - self._heard > self._patience_s

    def _written(self) -> int:
        return self._outcomes.stat().st_size if self._outcomes.exists() else 0

    def _end(self) -> None:
        """pytest has Python write to the log where each thread is."""
        self._process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DUMP_S)
        self._process.kill()
        self._process.wait()

    def _count(self) -> None:
        if self._hints.exists():
            self._counts.update(json.loads(self._hints.read_text("utf-8")))
            self._hints.unlink()

    @property
    def progress(self) -> str:
        """How many tests have ended, and in which test the run has been for long."""
        found = outcomes_in(self._outcomes)
        running = [name for name, outcome in found.items() if outcome == UNFINISHED]
        silent = time.monotonic() - self._heard
        where = f" ({silent:.0f} s in {running[-1]})" if running and silent > TOLD_EVERY_S else ""
        return f"{self.side} {len(found) - len(running):,}{where}"

    def result(self) -> Outcomes:
        """RuntimeError if the run did not come to its end."""
        if self._process.returncode not in _DONE:
            said = self._log.read_text("utf-8", "replace")[-2000:]
            raise RuntimeError(
                f"pytest ended with {self._process.returncode}; {self._log} ends with:\n{said}"
            )
        return Outcomes(outcomes_in(self._outcomes), self._counts)


def _servers(stack: ExitStack, topology: Topology, *, usual: bool) -> list[str]:
    """Starts the servers of one side, and returns the options that tell the suite where they are.

    `usual`: on the ports that the suite expects, if they are free. Only one side at a time can have them.
    """
    server, second, cluster = RedisServer(), RedisServer(), RedisCluster()
    if usual:
        places = [(server, PORT), (second, SECOND_PORT)]
        places += [(node, CLUSTER_PORT + at) for at, node in enumerate(cluster.nodes)]
        for each, port in places:
            _put(each, port)
        stack.enter_context(second)
    if usual or topology is STANDALONE:
        stack.enter_context(server)
    if topology is CLUSTER:
        return [f"--redis-url=redis://localhost:{stack.enter_context(cluster).nodes[0].port}/0"]
    sentinels = stack.enter_context(RedisSentinels(name=SERVICE)).sentinels
    told = ",".join(f"localhost:{each.port}" for each in sentinels)
    return [f"--redis-url=redis://localhost:{server.port}/0", f"--sentinels={told}"]


def _put(server: RedisServer, port: int) -> None:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # connections of the run before do not matter
        probe.bind(("127.0.0.1", port))
        server.port = port


def both(suite: Suite, topology: Topology, choice: Choice = EVERYTHING) -> dict[str, Outcomes]:
    """The outcomes of both sides, which run at the same time."""
    with ExitStack() as stack:
        runs = [stack.enter_context(Run(suite, topology, side, choice)) for side in (STOCK, OURS)]
        _wait(runs, f"redis-py {suite.version}, {topology.name}")
        return {run.side: run.result() for run in runs}


def in_turn(suite: Suite, topology: Topology, choice: Choice) -> dict[str, Outcomes]:
    """As `both`, one side after the other. Some tests open a fixed port, or look for a server there: only one side can have it."""
    outcomes = {}
    for side in (STOCK, OURS):
        with Run(suite, topology, side, choice) as run:
            _wait([run], f"redis-py {suite.version}, {topology.name}, {choice}")
            outcomes[side] = run.result()
    return outcomes


def _wait(runs: Sequence[Run], what: str) -> None:
    """Tells the progress until all runs have ended."""
    began = told = time.monotonic()
    while any([run.goes_on() for run in runs]):  # noqa: C419  each is asked, each time
        now = time.monotonic()
        if now - began > RUN_TIMEOUT_S:
            raise TimeoutError(f"{what}: not at its end after {RUN_TIMEOUT_S} s")
        if now - told >= TOLD_EVERY_S:
            told = now
            counts = ", ".join(run.progress for run in runs)
            print(f"  {what}: {now - began:.0f} s, tests: {counts}", flush=True)
        time.sleep(_POLL_S)
