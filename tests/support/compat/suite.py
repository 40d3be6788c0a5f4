"""One version of redis-py with its own test suite: fetched, unpacked and installed under build/compat.

pip fetches the source distribution, and only the suite is unpacked from it: so the suite tests the installed redis-py. Each
version has a virtual environment with redis-py, what its suite needs, and `cacheupdater` from this tree (editable: an edit needs
no new installation).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "compat"
LINES = ("6.2", "7", "8")  # of redis-py, the newest last: what pyproject.toml claims
# what redis-py's developers use beside the suite; no test imports them
UNUSED = {"build", "click", "coverage", "invoke", "pytest-cov", "pytest-profiling", "ruff", "vulture"}
# Its asyncio fixtures outlive the loops that they have run in. Later versions of pytest-asyncio refuse that, so no test of an
# asyncio Sentinel would run. This one takes an older pytest, which looks for the warnings of coverage.
OF_ITS_TIME = {"6.2": ("pytest-asyncio<1.1", "coverage")}
PIP_TIMEOUT_S = 1800  # a slow index; usually one minute


class Suite(NamedTuple):
    """What `prepared` has made."""

    line: str  # "8"
    version: str  # "8.1.0"
    folder: Path
    python: Path


def prepared(line: str) -> Suite:
    """The suite of the newest version that begins with `line`."""
    archive = _fetched(line)
    version = archive.name.removeprefix("redis-").removesuffix(".tar.gz")
    suite = Suite(line, version, BUILD / version / "suite", BUILD / version / "venv" / "bin" / "python")
    _unpack(archive, suite.folder)
    _install(suite)
    return suite


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True, timeout=PIP_TIMEOUT_S)


def _fetched(line: str) -> Path:
    folder = BUILD / "sdist" / line
    shutil.rmtree(folder, ignore_errors=True)
    _pip("download", "--no-deps", "--no-binary", "redis", "--dest", str(folder), f"redis=={line}.*")
    [archive] = folder.glob("redis-*.tar.gz")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as packed:
        for member in packed:
            inner = member.name.partition("/")[2]
            if inner in {"pyproject.toml", "dev_requirements.txt"} or inner.startswith("tests/"):
                packed.extract(member, folder, filter="data")
    (inside,) = folder.iterdir()
    for each in inside.iterdir():
        each.rename(folder / each.name)
    inside.rmdir()


def requirements(text: str) -> list[str]:
    """The lines of dev_requirements.txt that the suite needs."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and re.split(r"[^\w-]", line)[0].lower() not in UNUSED]


def _install(suite: Suite) -> None:
    """Does nothing if the environment has all of this already."""
    needed = [
        f"redis=={suite.version}",
        *requirements((suite.folder / "dev_requirements.txt").read_text("utf-8")),
        *OF_ITS_TIME.get(suite.line, ()),
    ]
    folder = suite.python.parents[1]
    done = folder / "installed"
    if done.exists() and done.read_text("utf-8").splitlines() == needed:
        return
    venv.create(folder, clear=True, symlinks=True)
    listed = folder / "requirements"
    listed.write_text("\n".join(needed), "utf-8")
    where = ("--python", str(suite.python), "install", "--no-compile")
    _pip(*where, "--requirement", str(listed), "--editable", str(ROOT))
    listed.rename(done)
