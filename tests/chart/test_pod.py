"""What of the pods can run without a kubelet: their rendered commands, variables, files, probes and user.

A folder stands for the root of the file system: paths of mounts are rewritten to lie in it, addresses to lie on this
machine. The processes are the user of the chart where root runs the tests and that user can read the interpreter;
otherwise they are whoever runs the tests, which is told.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import urllib.request
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from chart_tools import rendered, told
from updater_process import eventually, free_port

from cacheupdater.testing.redis_server import RedisServer
from cacheupdater_client import Redis

VALUES = """
existingSecret: {name: shop}
test: {key: "product:1", timeoutSeconds: 20}
config:
  version: 1
  listen: ["tcp://0.0.0.0:7171"]
  cache: {url: "redis://:${REDIS_PASSWORD}@127.0.0.1:REDIS_PORT/0"}
  sources: {main: {url: "sqlite+aiosqlite:////var/lib/cacheupdater/shop.db", budget: 500/s}}
  namespaces: {product: {key: "product:{id:int}", load: {source: main, table: products}}}
"""
SECRET = {"REDIS_PASSWORD": "s3cret"}
MOUNTED = ("/etc/cacheupdater", "/var/lib/cacheupdater", "/run/cacheupdater", "/run/secrets")


@cache
def _user(wanted):
    """As whom a process of the pod starts here."""
    user = {"user": wanted, "group": wanted, "extra_groups": []}
    try:
        subprocess.run([sys.executable, "-c", ""], check=True, cwd="/", **user)
    except (OSError, subprocess.CalledProcessError) as e:
        told(f"the pod's processes are user {os.geteuid()}, not {wanted}: {e}")
        return {}
    return user


class Machine:
    """One node: the pods' files, and how their processes start."""

    def __init__(self, root, found):
        self.root, self.found = root, found
        self.admin, self.hints = free_port(), free_port()
        for each in MOUNTED:
            (root / each[1:]).mkdir(parents=True)
        for each in found:
            if each["kind"] == "ConfigMap":
                folder = root / ("etc/cacheupdater-test" if "see.py" in each["data"] else "etc/cacheupdater")
                folder.mkdir(exist_ok=True)
                for name, text in each["data"].items():
                    (folder / name).write_text(self.inside(text) if name.endswith(".yaml") else text)

    def inside(self, text):
        text = text.replace("0.0.0.0:9090", f"127.0.0.1:{self.admin}")
        text = text.replace("0.0.0.0:7171", f"127.0.0.1:{self.hints}")
        text = text.replace("shop-cacheupdater:7171", f"127.0.0.1:{self.hints}")
        for each in MOUNTED:
            text = text.replace(each, f"{self.root}{each}")
        return text

    def start(self, pod):
        container = pod["containers"][0]
        entry = [sys.executable, "-m", "cacheupdater"]  # the image's
        if "command" in container:
            entry = [sys.executable, *container["command"][1:]]
        given = {each["name"]: self.inside(str(each["value"])) for each in container.get("env", ())}
        return subprocess.Popen(
            [self.inside(each) for each in [*entry, *container.get("args", ())]],
            env={"PATH": os.defpath, "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", **SECRET, **given},
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **_user(container["securityContext"]["runAsUser"]),
        )

    def probe(self, probe):
        """Whether the kubelet would be content."""
        port = {"admin": self.admin}[probe["httpGet"]["port"]]
        url = f"http://127.0.0.1:{port}{probe['httpGet']['path']}"
        try:
            with urllib.request.urlopen(url, timeout=probe["timeoutSeconds"]) as answer:
                return answer.status == 200
        except OSError:
            return False


@pytest.fixture
def node():
    """A machine with a running updater, and Redis with a password."""
    root = Path(tempfile.mkdtemp(prefix="cacheupdater-pod-"))
    with RedisServer(options=["--requirepass", SECRET["REDIS_PASSWORD"]]) as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
        (root / "values.yaml").write_text(VALUES.replace("REDIS_PORT", port))
        machine = Machine(root, rendered("--values", root / "values.yaml"))
        with sqlite3.connect(root / "var/lib/cacheupdater/shop.db") as shop:
            shop.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT)")
            shop.execute("INSERT INTO products VALUES (1, 'tea'), (2, 'milk')")
        shop.close()
        subprocess.run(["chmod", "-R", "a+rX", root], check=True)
        if _user(65532):
            subprocess.run(["chown", "-R", "65532:65532", root / "var", root / "run"], check=True)
        pod = next(each for each in machine.found if each["kind"] == "Deployment")["spec"]["template"]["spec"]
        updater = machine.start(pod)
        container = pod["containers"][0]
        try:
            eventually(lambda: machine.probe(container["startupProbe"]), within=60)
            eventually(lambda: machine.probe(container["readinessProbe"]), within=60)
            yield SimpleNamespace(machine=machine, updater=updater, pod=pod, redis_port=port)
        finally:
            updater.kill()
            updater.communicate()
            shutil.rmtree(root)


def test_the_pod_runs_and_the_test_of_the_release_sees_a_value_arrive(node):
    container = node.pod["containers"][0]
    assert node.machine.probe(container["livenessProbe"])
    if _user(65532):
        assert f"\nUid:\t{65532}\t" in Path(f"/proc/{node.updater.pid}/status").read_text()
    test = next(each for each in node.machine.found if each["kind"] == "Pod")
    run = node.machine.start(test["spec"])
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert "product:1: a hint was left, and string was there after" in said


def test_the_test_of_the_release_fails_where_no_value_arrives(node):
    node.updater.kill()
    test = next(each for each in node.machine.found if each["kind"] == "Pod")
    for each in test["spec"]["containers"][0]["env"]:
        if each["name"] == "TEST_TIMEOUT":
            each["value"] = "1"
    run = node.machine.start(test["spec"])
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 1, said
    assert "no value within 1 s" in said


def test_an_application_beside_it_does_not_notice_its_death(node):
    url = f"redis://:{SECRET['REDIS_PASSWORD']}@127.0.0.1:{node.redis_port}/0"
    shop = Redis.from_url(url, emit=f"tcp://127.0.0.1:{node.machine.hints}", only=["product:"])
    assert shop.get("product:2") is None
    eventually(lambda: shop.get("product:2"))
    node.updater.send_signal(signal.SIGKILL)
    node.updater.wait(10)
    assert [b"milk" in shop.get("product:2") for _ in range(1000)] == [True] * 1000


def test_it_ends_within_the_grace_period(node):
    node.updater.terminate()
    assert node.updater.wait(node.pod["terminationGracePeriodSeconds"]) == 0
