"""Services of examples/03-compose as processes of this machine: their command lines, environments, mounts and checks.

No container engine runs here, so names are replaced instead: a mounted path becomes the mounted file or folder, a service's
name becomes its address in this run, and a port becomes a free one. Redis, PostgreSQL and Kafka are the servers of the tests.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from live.updater_process import ROOT
from ruamel.yaml import YAML

from cacheupdater.local.children import dying_with_us
from cacheupdater.local.ports import free_port
from cacheupdater.local.redis_server import executables

HOME = ROOT / "examples" / "03-compose"
FILE = HOME / "compose.yaml"
OURS = "ghcr.io/cacheupdater/cacheupdater"


def document():
    return YAML(typ="safe", pure=True).load(FILE.read_text())


class Services:
    """The services of one test. `addresses` maps addresses in the file, such as redis://redis:6379, to those of this run."""

    def __init__(self, folder, addresses):
        self.folder, self.addresses = Path(folder), addresses
        self.services = document()["services"]
        self.running = {}
        self.places = {}

    def start(self, name):
        """Returns when the service says that it is ready."""
        service = self.services[name]
        assert service["image"].startswith(OURS)
        places = self.places[name] = self._places(name, service)
        program = [sys.executable, *service["entrypoint"][1:]] if "entrypoint" in service else self._ours()
        command = [_put(each, places) for each in (*program, *service.get("command", ()))]
        said = {key: _put(value, places) for key, value in service.get("environment", {}).items()}
        if "/run/cacheupdater" in places:  # where the client looks by itself
            said.setdefault("CACHEUPDATER_EMIT", f"unix://{places['/run/cacheupdater']}/hints.sock")
        imports = os.pathsep.join((str(ROOT), str(ROOT / "client")))
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                dying_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={"PATH": os.defpath, "PYTHONPATH": imports, **said},
                cwd=self.folder,
                text=True,
            )
        return self.running[name]

    def ready(self, name):
        line = self.start(name).stdout.readline()
        assert line.startswith("ready"), self.log(name)

    def done(self, name):
        """The exit code of a service that ends by itself."""
        process = self.start(name)
        process.communicate(timeout=60)
        return process.returncode

    def healthy(self, name):
        """The result of its health check."""
        kind, *test = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        command = [_put(each, self.places[name]) for each in [sys.executable, *test[1:]]]
        assert test[0] == "python3"
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0

    def url(self, name):
        return "http://" + self.places[name]["0.0.0.0:8000"]

    def log(self, name):
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def end(self, name):
        """The exit code after a SIGTERM."""
        process = self.running.pop(name)
        process.terminate()
        process.communicate(timeout=30)
        return process.returncode

    def close(self):
        for name, process in self.running.items():
            process.kill()
            process.communicate(timeout=30)
            print(f"--- {name} ---\n{self.log(name)[-4000:]}")

    def _ours(self):
        return [sys.executable, "-m", "cacheupdater"]

    def _places(self, name, service):
        here = {
            f"{which}:{port}": f"127.0.0.1:{number}"
            for port in (8000, 9090)
            for number in [free_port()]
            for which in ("0.0.0.0", "127.0.0.1")
        }
        here |= self.addresses
        for volume in service.get("volumes", ()):
            source, target, *_ = volume.split(":")
            if not source.startswith("."):
                (self.folder / source).mkdir(exist_ok=True)
                here[target] = str(self.folder / source)
            else:
                here[target] = str(HOME / source)
        for volume in service.get("volumes", ()):
            source, target, *_ = volume.split(":")
            if source.endswith(".yaml"):  # a configuration holds addresses too
                copy = self.folder / f"{name}.yaml"
                copy.write_text(_put((HOME / source).read_text(), here))
                here[target] = str(copy)
        return here


def _put(text, places):
    """The text with our addresses in place of the file's, the longest first."""
    theirs = sorted(places, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, theirs)), lambda found: places[found[0]], str(text))


def redis_line(port):
    """The command of the service `redis` with the server that the tests have."""
    program, *rest = document()["services"]["redis"]["command"]
    assert program == "redis-server"
    return [str(executables()[0]), *rest, "--port", str(port), "--bind", "127.0.0.1"]


def browser():
    """A headless one, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def look(url, *asked, width, height, profile):
    """Opens the page for some seconds. Returns the browser's answer on stdout, and the lines of the page's console."""
    flags = (
        "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run"
    )
    seen = f"--window-size={width},{height} --virtual-time-budget=5000 --enable-logging=stderr"
    command = [browser(), *shlex.split(flags), *shlex.split(seen), f"--user-data-dir={profile}", *asked, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
