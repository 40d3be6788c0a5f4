"""The chart's collector as a process: its rendered command, variables, mounts, probes and user, in front of streams of a Redis.

As in `test_pod`, `contained` does what a kubelet would do. An application sends hints to the port that the service leads to.
"""

from __future__ import annotations

import stat
import sys
import tempfile
from pathlib import Path

import pytest
import redis
from containers.contained import ISOLATED, OBSTACLE, Pod
from kube.chart_tools import CHART, rendered
from live.updater_process import ROOT, eventually

from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Redis

PASSWORD = "s3cret"
GRACE_S = 30.0


class Node:
    """A machine with the pod of a release, and the Redis with its streams."""

    def __init__(self, folder, server):
        found = rendered(
            "--values",
            CHART / "ci/collect-from-secret-values.yaml",
            "--set=collect.queue=redis://:$(QUEUE_PASSWORD)@queue:6379/0?stream=hints&partitions=2",
        )
        workload = next(each for each in found if each["kind"] == "Deployment")
        self.spec = workload["spec"]["template"]["spec"]
        self.redis_url = f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"
        self.streams = redis.Redis.from_url(self.redis_url)
        secret = {("Secret", "shop-hints"): {"QUEUE_PASSWORD": PASSWORD}}
        self.pod = Pod(folder, self.spec, contents=secret)
        (container,) = self.spec["containers"]
        program = [sys.executable, "-m", "cacheupdater"]
        places = {"queue:6379": f"127.0.0.1:{server.port}"}
        self.collector = self.pod.contain(container, program, places=places)
        self.hints = f"tcp://127.0.0.1:{self.pod.port(7171)}"

    def forwarded(self):
        """The number of packs that are in the streams."""
        kept = self.streams.scan_iter("{hints:*", _type="stream")
        return sum(self.streams.xlen(each) for each in kept)


@pytest.fixture
def node():
    options = ["--requirepass", PASSWORD, "--maxmemory-policy", "noeviction"]
    with RedisServer(options=options) as server, tempfile.TemporaryDirectory(prefix="pod-") as folder:
        Path(folder).chmod(0o755)
        made = Node(Path(folder), server)
        yield made
        made.collector.kill()
        made.streams.close()
        print(f"--- collector ---\n{made.collector.log}")  # pytest shows this if a test fails


def test_a_hint_comes_through_the_collectors_pod_into_the_queue_whose_password_the_secret_has(node):
    node.collector.start()
    eventually(lambda: node.collector.probe("startupProbe"))
    eventually(lambda: node.collector.probe("readinessProbe"))
    assert node.collector.probe("livenessProbe")
    assert node.forwarded() == 0
    with Redis.from_url(node.redis_url, emit=node.hints, only=["product:"]) as shop:
        shop.get("product:7")
        eventually(node.forwarded)
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


@pytest.mark.skipif(not ISOLATED, reason=OBSTACLE)
def test_the_collector_can_write_only_into_its_own_mounts(node):
    wrote, who = node.collector.tried([*node.pod.paths.values(), "/var/lib", ROOT])
    assert wrote == {"run", "state", "tmp"}
    assert who == f"65532 [65532] {['0' * 16] * 3}"
