"""The chart's pods as far as they can run without a kubelet: rendered commands, variables, files, probes, mounts and user.

`contained` makes a process from a container; the conftest prints at the end of the run which user the process had. Redis
is a real server with a password, and the database is a file in the updater's state folder. Beside the updater an
application reads, which has only our client. `tests/sidecar` has the same tests for the sidecar.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from pathlib import Path

import pytest
from containers.contained import ISOLATED, OBSTACLE, Pod
from kube.chart_tools import rendered
from live.updater_process import ROOT, eventually
from live.watched_application import KEY, Application, none_waited

from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Redis

VALUES = """
existingSecret: {name: shop}
test: {key: "product:7", timeoutSeconds: 20}
config:
  version: 1
  listen: ["tcp://0.0.0.0:7171"]
  admin: {listen: "0.0.0.0:9090", token_file: /run/secrets/cacheupdater/token}
  defaults: {refresh: {every: 300ms}}
  cache: {url: "redis://:${REDIS_PASSWORD}@redis:6379/0"}
  sources: {main: {url: "sqlite+aiosqlite:////var/lib/cacheupdater/shop.db", budget: 500/s}}
  namespaces: {product: {key: "product:{id:int}", load: {source: main, table: products}}}
"""
SECRET = {"REDIS_PASSWORD": "s3cret", "token": "a-token-that-nobody-guesses-0123456789"}
ENTRY = [sys.executable, "-m", "cacheupdater"]  # the image's
GRACE_S = 30.0
RUN_S = 60.0
APPLICATION = {
    "name": "shop",
    "securityContext": {
        "runAsUser": 10001,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}


class Node:
    """A machine with the objects of `helm install`, and a Redis."""

    def __init__(self, folder, redis_port):
        self.folder = folder
        (folder / "values.yaml").write_text(VALUES)
        found = rendered("--values", folder / "values.yaml")
        self.contents = {("Secret", "shop"): SECRET}
        self.contents |= {
            ("ConfigMap", each["metadata"]["name"]): each["data"]
            for each in found
            if each["kind"] == "ConfigMap"
        }
        self.spec = next(each for each in found if each["kind"] == "Deployment")["spec"]["template"]["spec"]
        self.spec_of_test = next(each for each in found if each["kind"] == "Pod")["spec"]
        self.redis = f"127.0.0.1:{redis_port}"
        self.redis_url = f"redis://:{SECRET['REDIS_PASSWORD']}@{self.redis}/0"
        self.pod, self.updater = self._contain("updater", self.spec, {})
        self.hints = f"127.0.0.1:{self.pod.port(7171)}"  # here there is no service that leads to this port
        self.application = self._application()

    def _contain(self, name, spec, places):
        folder = self.folder / name
        folder.mkdir(mode=0o755)
        pod = Pod(folder, spec, contents=self.contents)
        (container,) = spec["containers"]
        return pod, pod.contain(container, ENTRY, places={"redis:6379": self.redis, **places})

    def _application(self):
        (self.folder / "shop").mkdir(mode=0o755)
        pod = Pod(self.folder / "shop", {"securityContext": {"fsGroup": 10001}, "volumes": []})
        return Application(pod, APPLICATION, redis_url=self.redis_url, emit=f"tcp://{self.hints}")

    def set_price(self, price):
        file = self.pod.paths["state"] / "shop.db"
        with sqlite3.connect(file) as shop:
            shop.execute("CREATE TABLE IF NOT EXISTS products (id INTEGER PRIMARY KEY, price INTEGER)")
            shop.execute("INSERT OR REPLACE INTO products VALUES (7, ?)", (price,))
        shop.close()

    def start(self):
        """As the kubelet does: the other two probes begin after the startup probe has succeeded."""
        self.updater.start()
        eventually(lambda: self.updater.probe("startupProbe"))
        eventually(lambda: self.updater.probe("readinessProbe"))

    def test_release(self, **changed):
        """Runs the pod of `helm test`. Returns its exit code and its output."""
        for each in self.spec_of_test["containers"][0]["env"]:
            each["value"] = changed.get(each["name"], each["value"])
        _, test = self._contain("test", self.spec_of_test, {"shop-cacheupdater:7171": self.hints})
        said, _ = test.start().process.communicate(timeout=RUN_S)
        return test.process.returncode, said + test.log


@pytest.fixture
def node():
    options = ["--requirepass", SECRET["REDIS_PASSWORD"]]
    with RedisServer(options=options) as server, tempfile.TemporaryDirectory(prefix="pod-") as folder:
        Path(folder).chmod(0o755)
        made = Node(Path(folder), server.port)
        made.set_price(900)
        yield made
        made.application.kill()
        made.updater.kill()
        print(f"--- updater ---\n{made.updater.log}")  # pytest shows this if a test fails


def test_the_pod_runs_and_the_test_of_the_release_sees_a_value_arrive(node):
    node.start()
    assert node.updater.probe("livenessProbe")
    code, said = node.test_release()
    assert code == 0, said
    assert "product:7: a hint was left, and string was there after" in said


def test_the_test_of_the_release_fails_where_no_value_arrives(node):
    code, said = node.test_release(TEST_TIMEOUT="1")
    assert code == 1, said
    assert "no value within 1 s" in said


def test_hints_of_an_application_reach_redis_and_it_does_not_notice_the_updaters_death(node):
    node.application.start()
    alone = node.application.reads_for(1.0)
    assert {each["value"] for each in alone} == {None}
    node.start()
    eventually(lambda: node.application.price() == 900)
    node.set_price(750)
    eventually(lambda: node.application.price() == 750)

    node.updater.kill()
    without = node.application.reads_for(2.0)
    assert {json.loads(each["value"])["price"] for each in without} == {750}
    assert none_waited(alone)
    assert none_waited(without)
    assert not node.updater.probe("livenessProbe")

    node.set_price(600)
    node.start()  # the kubelet does this
    eventually(lambda: node.application.price() == 600)
    assert node.application.alive


def test_the_updater_ends_within_the_grace_period(node):
    node.start()
    with Redis.from_url(node.redis_url, emit=f"tcp://{node.hints}", only=["product:"]) as shop:
        eventually(lambda: shop.get(KEY))
    seconds, code = node.updater.end(GRACE_S)
    assert code == 0
    assert seconds < node.spec["terminationGracePeriodSeconds"]


@pytest.mark.skipif(not ISOLATED, reason=OBSTACLE)
def test_the_updater_runs_as_its_user_and_can_write_only_into_its_own_mounts(node):
    assert {"config", "secret", "run", "state", "tmp"} <= node.pod.paths.keys()
    wrote, who = node.updater.tried([*node.pod.paths.values(), "/var/lib", ROOT])
    assert wrote == {"run", "state", "tmp"}
    assert who == f"65532 [65532] {['0' * 16] * 3}"
