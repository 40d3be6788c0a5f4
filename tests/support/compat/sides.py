"""Runs one suite on both sides at the same time: redis-py as it is ("stock"), and with our classes in its place ("ours").

Each side has servers of its own: a Redis, and another under three sentinels; or a cluster of six nodes. Both sides run together, so that both see the same
load; tests whose outcome differs run again in turn. The output of each side goes to a log beside its outcomes.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from cacheupdater.local.children import dying_with_us
from cacheupdater.local.redis_cluster import RedisCluster
from cacheupdater.local.redis_sentinel import RedisSentinels
from cacheupdater.local.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compat.suite import Suite

SUPPORT = Path(__file__).parents[1]
STOCK, OURS = "stock", "ours"
SERVICE = "redis-py-test"  # the suite's name for the primary that the sentinels watch
RUN_TIMEOUT_S = 3600  # of one side; a quiet machine needs some minutes
TOLD_EVERY_S = 30
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

    @classmethod
    def of(cls, names: Sequence[str]) -> Self:
        """These tests alone."""
        return cls(sorted({name.partition("::")[0] for name in names}), names)


EVERYTHING = Choice()


class Outcomes(NamedTuple):
    """What one side has done."""

    by_test: Mapping[str, str]  # passed, failed or skipped
    hints: Mapping[str, int]  # counts of our client; empty for stock


class Run:
    """One side of one topology, while it runs."""

    def __init__(self, suite: Suite, topology: Topology, side: str, choice: Choice) -> None:
        self.side = side
        self._suite = suite
        self._topology = topology
        self._choice = choice
        again = "-again" if choice.names else ""  # the log of the first run stays
        base = suite.folder.parent / f"{topology.name}-{side}{again}"
        self._outcomes, self._hints = base.with_suffix(".jsonl"), base.with_suffix(".hints")
        self._log, self._chosen = base.with_suffix(".log"), base.with_suffix(".tests")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            servers = _servers(stack, self._topology)
            self._start([*self._command(), *servers, *(self._choice.paths or ["tests"])])
            self._servers = stack.pop_all()
        return self

    def _start(self, command: Sequence[str]) -> None:
        for old in (self._outcomes, self._hints):
            old.unlink(missing_ok=True)
        self._chosen.write_text("\n".join(self._choice.names), "utf-8")
        environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "PYTHONHASHSEED": "0"}  # noqa: TID251  handed on to a child
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                dying_with_us(command),
                cwd=self._suite.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _command(self) -> list[str]:
        command = [str(self._suite.python), "-m", "pytest", "-p", "compat.recording"]
        command += [
            f"--outcomes={self._outcomes}",
            "-q",
            "--tb=short",
            "-p",
            "no:cacheprovider",
            *self._topology.options,
        ]
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

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def done(self) -> int:
        """The number of tests that have ended."""
        return self._outcomes.read_bytes().count(b"\n") if self._outcomes.exists() else 0

    def result(self) -> Outcomes:
        """RuntimeError if the run did not come to its end."""
        if self._process.returncode not in _DONE:
            said = self._log.read_text("utf-8", "replace")[-2000:]
            raise RuntimeError(
                f"pytest ended with {self._process.returncode}; {self._log} ends with:\n{said}"
            )
        lines = map(json.loads, self._outcomes.read_text("utf-8").splitlines())
        found = {name: outcome for name, outcome, _ in lines}
        hints = json.loads(self._hints.read_text("utf-8")) if self.side == OURS else {}
        return Outcomes(found, hints)


def _servers(stack: ExitStack, topology: Topology) -> list[str]:
    """Starts the servers of one side, and returns the options that tell the suite where they are."""
    if topology is CLUSTER:
        port = stack.enter_context(RedisCluster()).nodes[0].port
        return [f"--redis-url=redis://localhost:{port}/0"]
    port = stack.enter_context(RedisServer()).port
    sentinels = stack.enter_context(RedisSentinels(name=SERVICE)).sentinels
    places = ",".join(f"localhost:{each.port}" for each in sentinels)
    return [f"--redis-url=redis://localhost:{port}/0", f"--sentinels={places}"]


def both(suite: Suite, topology: Topology, choice: Choice = EVERYTHING) -> dict[str, Outcomes]:
    """The outcomes of both sides, which run at the same time."""
    with ExitStack() as stack:
        runs = [stack.enter_context(Run(suite, topology, side, choice)) for side in (STOCK, OURS)]
        _wait(runs, f"redis-py {suite.version}, {topology.name}")
        return {run.side: run.result() for run in runs}


def in_turn(suite: Suite, topology: Topology, choice: Choice) -> dict[str, Outcomes]:
    """As `both`, one side after the other. Some tests of the suite open a fixed port, which only one of them can have."""
    outcomes = {}
    for side in (STOCK, OURS):
        with Run(suite, topology, side, choice) as run:
            _wait(
                [run], f"redis-py {suite.version}, {topology.name}, {len(choice.names)} tests again, {side}"
            )
            outcomes[side] = run.result()
    return outcomes


def _wait(runs: Sequence[Run], what: str) -> None:
    """Tells the progress until all runs have ended."""
    began = told = time.monotonic()
    while any(run.running for run in runs):
        now = time.monotonic()
        if now - began > RUN_TIMEOUT_S:
            raise TimeoutError(f"{what}: not at its end after {RUN_TIMEOUT_S} s")
        if now - told >= TOLD_EVERY_S:
            told = now
            counts = ", ".join(f"{run.side} {run.done:,}" for run in runs)
            print(f"  {what}: {now - began:.0f} s, tests: {counts}", flush=True)
        time.sleep(_POLL_S)
