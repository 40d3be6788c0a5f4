"""A real kube-apiserver and a real etcd for `make chart-cluster`: from PATH where both are there, else built here, once.

They are built from the Go modules that `server/` names (its go.sum pins every byte), into a folder of the user's
cache for each state of those files. That takes minutes, so `make chart-cluster` runs this file first, which prints its
progress. A test that finds nothing built builds silently.

    PYTHONPATH=tests/support python -m kube.binaries
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from kube import chart_tools
from kube.chart_tools import CACHE, ran, told

SOURCE = Path(__file__).with_name("server")
EVERY_S = 15.0  # between two lines about the progress of a build
SAID = 20  # lines of a build that failed


@dataclass(frozen=True)
class Binaries:
    """Two programs."""

    etcd: str
    apiserver: str


@cache
def binaries(*, say=lambda text: None) -> Binaries:
    """Both programs. The test is skipped if they can neither be found nor built."""
    found = Binaries(*(shutil.which(each) or "" for each in ("etcd", "kube-apiserver")))
    if not (found.etcd and found.apiserver):
        folder = CACHE / f"kubernetes-{_state()}"
        if not folder.exists():
            if not shutil.which("go"):
                pytest.skip(
                    "kube-apiserver and etcd are neither on PATH nor built, and there is no Go to build them"
                )
            _build(folder, say)
            told("kube-apiserver and etcd were built from their Go modules")
        found = Binaries(str(folder / "etcd"), str(folder / "kube-apiserver"))
    told(f"{found.apiserver}: {ran(found.apiserver, '--version').stdout.strip()}")
    told(f"{found.etcd}: {ran(found.etcd, '--version').stdout.partition(chr(10))[0]}")
    return found


def version() -> str:
    """The version of Kubernetes in go.mod, such as 1.34.2."""
    (found,) = re.findall(
        r"^require k8s\.io/kubernetes v(\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE
    )
    return found


def _state() -> str:
    files = sorted(each for each in SOURCE.iterdir() if each.name in {"go.mod", "go.sum", "main.go"})
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:16]


def _build(folder: Path, say) -> None:
    """Builds both completely or not at all, even if other processes build at the same time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as place:
        fresh = Path(place) / "built"
        fresh.mkdir()
        _compile(fresh / "kube-apiserver", say)
        (fresh / "etcd").symlink_to("kube-apiserver")
        if not folder.exists():
            fresh.rename(folder)


def _compile(program: Path, say) -> None:
    major, minor, _ = version().split(".")
    said = {"gitVersion": f"v{version()}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={text}" for name, text in said.items())
    command = [
        "go",
        "build",
        "-v",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        f"-s -w {flags}",
    ]
    lines = []
    with subprocess.Popen(
        [*command, "-o", str(program), "."],
        cwd=SOURCE,
        env={**os.environ, "CGO_ENABLED": "0"},  # noqa: TID251  handed on to a child; no C compiler is needed
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as build:
        for line in _watched(build.stderr, say):
            lines = [*lines[1 - SAID :], line]
    assert build.returncode == 0, "kube-apiserver and etcd cannot be built:\n" + "".join(lines)


def _watched(lines, say):
    """Go's lines of output, counted on the screen."""
    began = told_at = time.monotonic()
    fetched = compiled = 0
    for line in lines:
        if line.startswith("go: downloading "):
            fetched += 1
        else:
            compiled += 1
        if time.monotonic() - told_at > EVERY_S:
            told_at = time.monotonic()
            say(f"  {told_at - began:.0f} s: {fetched} modules fetched, {compiled} packages compiled")
        yield line


def main() -> int:
    """Prepares all that `make chart-cluster` needs beside Python, before its tests."""

    def say(text):
        print(text, flush=True)

    say(
        f"kube-apiserver {version()}, etcd, helm and definitions of custom resources: what is not here is fetched (once) ..."
    )
    for bring in (lambda: binaries(say=say), chart_tools.helm, chart_tools.crds):
        try:
            bring()
        except pytest.skip.Exception as e:
            say(f"left out: {e}")
    for each in chart_tools.TOLD:
        say(f"  {each}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
