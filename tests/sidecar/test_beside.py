"""The rendered sidecar as a process beside an example application: hints reach Redis, and its death harms nobody.

The manifest is the plain one, which `make chart` holds equal to what the include renders. What a kubelet would do from
it is done here by `contained`: command line, environment, mounts, user, probe.
"""

from __future__ import annotations

import json
import sqlite3
import stat
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

import pytest
import redis
from containers.contained import ISOLATED, OBSTACLE, Pod, how
from kube.sidecar_chart import PLAIN, configuration, pod
from live.updater_process import ROOT, eventually
from live.watched_application import KEY, Application, none_waited

QUICK = "\ndefaults: {refresh: {every: 300ms}}\n"  # learning what is worth a row takes longer


class Beside:
    """A pod of two processes on one machine."""

    def __init__(self, folder, manifest, redis_url):
        self.database = folder / "db"
        self.database.mkdir()
        self.set_price(900)
        self.spec = pod(manifest)
        contents = {
            ("ConfigMap", "shop-cacheupdater"): {"cacheupdater.yaml": configuration(manifest) + QUICK},
            ("Secret", "shop-cacheupdater"): {"SHOP_DB": f"sqlite+aiosqlite:///{self.database}/shop.db"},
        }
        self.pod = Pod(folder, self.spec, contents=contents)
        self.port = self.pod.port(9090)
        self.redis_url = redis_url
        (container,) = self.spec["initContainers"]
        (application,) = self.spec["containers"]
        updater = [sys.executable, "-m", "cacheupdater"]
        self.sidecar = self.pod.contain(container, updater, places={"redis://redis:6379/0": redis_url})
        socket = self.sidecar.here("unix:///run/cacheupdater/hints.sock")  # where the client looks by itself
        self.application = Application(self.pod, application, redis_url=redis_url, emit=socket)

    def set_price(self, price):
        with sqlite3.connect(self.database / "shop.db") as shop:
            shop.execute(
                "CREATE TABLE IF NOT EXISTS products (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)"
            )
            shop.execute("INSERT OR REPLACE INTO products VALUES (7, 'teapot', ?)", (price,))

    def start_sidecar(self):
        self.sidecar.start()
        line = self.sidecar.process.stdout.readline()
        assert line.startswith("ready"), self.sidecar.log

    def hints(self):
        """That this sidecar has taken in so far."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as page:
            samples = [
                each
                for each in page.read().decode().splitlines()
                if each.startswith("cacheupdater_hints_total")
            ]
        return sum(float(each.split()[-1]) for each in samples)


@pytest.fixture
def beside(redis_url):
    with tempfile.TemporaryDirectory(prefix="sidecar-") as folder:  # a socket's path is short
        Path(folder).chmod(0o755)
        story = Beside(Path(folder), PLAIN.read_text(), redis_url)
        yield story
        story.sidecar.kill()
        story.application.kill()
        print(f"--- sidecar, {how} ---\n{story.sidecar.log}")


@pytest.mark.prove  # the next one says half of it in every `make test`
def test_hints_of_the_application_reach_redis_through_the_rendered_sidecar(beside):
    beside.start_sidecar()
    socket = beside.pod.paths["cacheupdater-run"] / "hints.sock"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o660
    if ISOLATED:
        assert (socket.stat().st_uid, socket.stat().st_gid) == (65532, 65532)
    assert beside.sidecar.probe()
    beside.application.start()
    eventually(lambda: beside.application.price() == 900)
    beside.set_price(750)
    eventually(lambda: beside.application.price() == 750)
    seconds, code = beside.sidecar.end()
    assert code == 0
    assert seconds < 10.0  # below what a pod has by default
    print(f"sidecar ended within {seconds:.1f} s of SIGTERM; {how}")


@pytest.mark.prove
def test_application_does_not_notice_that_its_sidecar_is_not_there_or_dies_or_comes_back(beside):
    with redis.Redis.from_url(beside.redis_url) as plain:
        plain.set(KEY, json.dumps({"id": 7, "name": "teapot", "price": 900}))
    beside.application.start()
    before = beside.application.reads_for(1.0)
    beside.start_sidecar()
    beside.set_price(750)
    eventually(lambda: beside.application.price() == 750)

    beside.sidecar.kill()
    without = beside.application.reads_for(2.0)
    assert {json.loads(each["value"])["price"] for each in without} == {750}
    for seen in (before, without):
        assert none_waited(seen)
    assert not beside.sidecar.probe()

    beside.start_sidecar()  # the kubelet does this: the socket of the dead one is still there
    eventually(beside.hints)
    assert beside.application.alive


def test_sidecar_without_a_fleet_never_starts(beside):
    file = beside.pod.paths["cacheupdater-config"] / "cacheupdater.yaml"
    file.write_text(
        "".join(each for each in file.read_text().splitlines(True) if not each.startswith("fleet:"))
    )
    beside.sidecar.start()
    assert beside.sidecar.process.wait(30) == 78
    assert "each of N sidecars would spend every budget and quota whole" in beside.sidecar.log


@pytest.mark.skipif(not ISOLATED, reason=OBSTACLE)
def test_sidecar_can_write_nowhere_but_into_its_own_mounts(beside):
    folders = [*beside.pod.paths.values(), "/var/lib", ROOT]
    wrote, who = beside.sidecar.tried(folders)
    assert wrote == {"cacheupdater-run", "cacheupdater-state", "cacheupdater-tmp"}
    assert who == f"65532 [65532] {['0' * 16] * 3}"
