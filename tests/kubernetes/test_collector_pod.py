"""The charts' collectors as processes: rendered command, variables, mounts, probes and user, in front of streams of a Redis.

As in `test_pod`, `contained` does what a kubelet would do. An application sends hints to the port that the service leads to,
or to the socket that it shares with its sidecar.
"""

from __future__ import annotations

import stat
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from containers.contained import ISOLATED, OBSTACLE, Pod
from kube import sidecar_chart
from kube.chart_tools import CHART, rendered
from live.updater_process import ROOT, eventually

from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Redis

PASSWORD = "s3cret"
QUEUE = "redis://:$(QUEUE_PASSWORD)@queue:6379/0?stream=hints&partitions=2"
GRACE_S = 30.0


class Node:
    """A machine with a pod, and the Redis with the streams."""

    def __init__(self, folder, server, spec, container):
        self.spec = spec
        self.redis_url = f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"
        self.streams = redis.Redis.from_url(self.redis_url)
        (source,) = container["envFrom"]
        secret = {("Secret", source["secretRef"]["name"]): {"QUEUE_PASSWORD": PASSWORD}}
        self.pod = Pod(folder, spec, contents=secret)
        program = [sys.executable, "-m", "cacheupdater"]
        places = {"queue:6379": f"127.0.0.1:{server.port}"}
        self.collector = self.pod.contain(container, program, places=places)
        self.tcp = f"tcp://127.0.0.1:{self.pod.port(7171)}"

    def forwarded(self):
        """The number of packs that are in the streams."""
        kept = self.streams.scan_iter("{hints:*", _type="stream")
        return sum(self.streams.xlen(each) for each in kept)

    def start(self):
        self.collector.start()
        line = self.collector.process.stdout.readline()
        assert line.startswith("ready"), self.collector.log

    def forwards_what_is_read(self, emit):
        assert self.forwarded() == 0
        with Redis.from_url(self.redis_url, emit=emit, only=["product:"]) as shop:
            shop.get("product:7")
            eventually(self.forwarded)


def of_a_release():
    found = rendered("--values", CHART / "ci/collect-from-secret-values.yaml", f"--set=collect.queue={QUEUE}")
    workload = next(each for each in found if each["kind"] == "Deployment")
    spec = workload["spec"]["template"]["spec"]
    return spec, spec["containers"][0]


def of_a_sidecar(folder):
    values = sidecar_chart.HOME / "consumer/ci/collect-spill-values.yaml"
    queue = f"--set=cacheupdater-sidecar.collect.queue={QUEUE}"
    spec = sidecar_chart.pod(sidecar_chart.render(sidecar_chart.packed(folder), "--values", values, queue))
    return spec, spec["initContainers"][0]


@contextmanager
def machine(spec, container):
    options = ["--requirepass", PASSWORD, "--maxmemory-policy", "noeviction"]
    with RedisServer(options=options) as server, tempfile.TemporaryDirectory(prefix="pod-") as folder:
        Path(folder).chmod(0o755)
        made = Node(Path(folder), server, spec, container)
        yield made
        made.collector.kill()
        made.streams.close()
        print(f"--- collector ---\n{made.collector.log}")  # pytest shows this if a test fails


@pytest.fixture
def node():
    with machine(*of_a_release()) as made:
        yield made


def test_a_hint_comes_through_the_collectors_pod_into_the_queue_whose_password_the_secret_has(node):
    node.collector.start()
    eventually(lambda: node.collector.probe("startupProbe"))
    eventually(lambda: node.collector.probe("readinessProbe"))
    assert node.collector.probe("livenessProbe")
    node.forwards_what_is_read(node.tcp)
    seconds, code = node.collector.end(GRACE_S)
    assert code == 0
    assert seconds < node.spec["terminationGracePeriodSeconds"]
    assert PASSWORD not in node.collector.log


def test_the_collector_makes_a_directory_of_its_own_for_the_spill_within_the_open_volume(node):
    node.collector.start()
    eventually(lambda: node.collector.probe("readinessProbe"))
    volume = node.pod.paths["state"]
    assert stat.S_IMODE(volume.stat().st_mode) & 0o777 == 0o777
    assert stat.S_IMODE((volume / "spill").stat().st_mode) & 0o777 == 0o700


def test_a_hint_comes_through_the_sidecar_that_collects(tmp_path):
    with machine(*of_a_sidecar(tmp_path)) as node:
        node.start()
        assert node.collector.probe("livenessProbe")
        socket = node.pod.paths["cacheupdater-run"] / "hints.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
        assert (node.pod.paths["cacheupdater-state"] / "spill").is_dir()
        node.forwards_what_is_read(f"unix://{socket}")
        assert node.collector.end(GRACE_S)[1] == 0


@pytest.mark.skipif(not ISOLATED, reason=OBSTACLE)
def test_the_collector_can_write_only_into_its_own_mounts(node):
    wrote, who = node.collector.tried([*node.pod.paths.values(), "/var/lib", ROOT])
    assert wrote == {"run", "state", "tmp"}
    assert who == f"65532 [65532] {['0' * 16] * 3}"
