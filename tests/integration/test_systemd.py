"""The systemd unit: verified and rated by systemd's own tools where they are, and its command line run as a process."""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest
from live.updater_process import ROOT, eventually

from cacheupdater.local.children import dying_with_us

UNIT = ROOT / "deploy" / "systemd" / "cacheupdater.service"
EXPOSURE_MAX = 1.1  # of 10, as systemd 252 rates it
PROGRAM = "/opt/cacheupdater/bin/cacheupdater"
_DENY_EXECUTABLE_WRITES = "import ctypes,os,sys; assert not ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"

analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")


def settings():
    """Name and value, in order; a name may come twice."""
    lines = UNIT.read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]


@pytest.fixture
def unit(tmp_path):
    """With a program and a user that are here."""
    text = (
        UNIT.read_text()
        .replace(PROGRAM, sys.executable)
        .replace("=cacheupdater\nGroup=cacheupdater", "=games")
    )
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    return copy


def systemd(*args):
    command = ["systemd-analyze", "--no-pager", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@analyze
def test_unit_is_one_that_systemd_understands(unit):
    done = systemd("verify", unit)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("PrivateTmp=", "PrivateTmpp="))
    assert "PrivateTmpp" in systemd("verify", unit).stderr


@analyze
def test_unit_exposes_next_to_nothing(unit):
    done = systemd("security", "--offline=true", "--threshold=100", unit)
    (rated,) = re.findall(r"exposure level for \S+: ([\d.]+)", done.stdout)
    print(f"systemd-analyze security: {rated} of 10")
    assert float(rated) <= EXPOSURE_MAX


def test_unit_gives_no_more_rights_than_the_container_has():
    said = dict(settings())
    wanted = {
        "NoNewPrivileges": "yes",  # allowPrivilegeEscalation: false
        "CapabilityBoundingSet": "",  # drop: [ALL]
        "ProtectSystem": "strict",  # readOnlyRootFilesystem
        "SystemCallFilter": "~@privileged @resources",  # seccompProfile
        "PrivateTmp": "yes",
        "User": "cacheupdater",
        "RuntimeDirectory": "cacheupdater",
        "StateDirectory": "cacheupdater",
    }
    assert {name: said.get(name) for name in wanted} == wanted


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux'")
def test_command_of_the_unit_runs_reloads_and_drains_without_executable_writes(tmp_path, redis_url):
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT)")
    file = tmp_path / "cacheupdater.yaml"
    text = (
        f'version: 1\nlisten: ["unix://{tmp_path}/hints.sock"]\ncache: {{url: "{redis_url}"}}\n'
        f'sources: {{shop: {{url: "sqlite+aiosqlite:///{tmp_path}/shop.db", budget: 50/s}}}}\n'
        'namespaces: {product: {key: "product:{id:int}", load: {source: shop, table: products}}}\n'
    )
    file.write_text(text)
    said = dict(settings())
    ours = said["ExecStart"].replace(PROGRAM, f"{sys.executable} -m cacheupdater")
    command = ours.replace("/etc/cacheupdater/cacheupdater.yaml", str(file)).split()
    if (
        ctypes.CDLL(None).prctl(66, 0, 0, 0, 0) >= 0
    ):  # MemoryDenyWriteExecute, where the kernel has a call for it
        command = [sys.executable, "-c", _DENY_EXECUTABLE_WRITES, *command]
    log = tmp_path / "log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            dying_with_us(command), stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=tmp_path
        ) as process,
    ):
        try:
            assert process.stdout.readline().startswith("ready"), log.read_text()
            file.write_text(text.replace("50/s", "70/s"))
            assert said["ExecReload"] == "/bin/kill -HUP $MAINPID"
            process.send_signal(signal.SIGHUP)
            eventually(lambda: "may spend 70 a second" in log.read_text())
        finally:
            process.terminate()
        assert process.wait(int(said["TimeoutStopSec"].removesuffix("s"))) == 0
    assert said["RestartPreventExitStatus"] == "78"
