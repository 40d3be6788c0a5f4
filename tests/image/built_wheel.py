"""The package as its users get it: built, inspected, and installed from an index that has only the package and its needs.

`make package` calls this file by name; the suite does not collect this file. The tests run once for each supported Python
of this machine, and print which are missing. The first run fetches the dependencies from the usual index into build/wheels.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
from containers.local_index import serving

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build/image-tools/bin"
WHEELS = ROOT / "build/wheels"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Text alone: 560 modules of 2 kB each. A library or a picture that strays in is far larger than the room left here.
WHEEL_KB = 1300
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHOWN = ("cacheupdater", "demo", "--duration", "10", "--plain")
WHOLE = "updater,kafka,postgres,replication,sqlite"
"""All extras that an updater may need. The index is filled for them and for the demonstration."""
# settings of this machine for pip and uv could name other indexes
_OTHERS = ("PIP_", "UV_", "PYTHON")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERS)}  # noqa: TID251  the tests change a copy


def interpreter(version):
    """The path of this Python, or None. A shim of pyenv may name a version that is installed but not selected."""
    chosen = Path.home() / ".pyenv/versions"
    code = "import sys; print(sys.executable, '%d.%d' % sys.version_info[:2])"
    for each in filter(
        None, [shutil.which(f"python{version}"), *chosen.glob(f"{version}.*/bin/python{version}")]
    ):
        said = subprocess.run([each, "-c", code], check=False, capture_output=True, text=True).stdout.split()
        if said[1:] == [version]:
            return said[0]
    return None


HERE = {version: path for version in PYTHONS if (path := interpreter(version))}


def run(*command, timeout=300, env=None, cwd=None):
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=timeout, env=env, cwd=cwd
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the sdist, and with the wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(TOOLS / "python", "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    source = tmp_path_factory.mktemp("source")
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (source,) = source.iterdir()
    run(TOOLS / "python", "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module", params=list(HERE))
def python(request):
    return request.param


@pytest.fixture
def index(wheel, python):
    """What pip finds for this Python, and our wheel."""
    folder = WHEELS / python
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("cacheupdater-*"):
        old.unlink()
    shutil.copy(wheel, folder)
    pip = [HERE[python], "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", folder]
    run(*pip, "--find-links", folder, f"{folder / wheel.name}[demo,{WHOLE}]", timeout=600)
    with serving(folder) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def _told():
    missing = [each for each in PYTHONS if each not in HERE]
    print(f"\nPythons: {', '.join(HERE)}; not here: {', '.join(missing) or 'none'}")


# --- what the wheel contains --------------------------------------------------------------------------------------


def test_the_wheel_holds_the_two_packages_whole_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {each for each in archive.namelist() if ".dist-info/" not in each}
        rest = {each.rpartition("/")[2] for each in archive.namelist() if ".dist-info/" in each}
    tracked = run("git", "ls-files", "cacheupdater", "client/cacheupdater_client", cwd=ROOT).split()
    assert names == {each.removeprefix("client/") for each in tracked}
    assert rest == {"METADATA", "WHEEL", "RECORD", "LICENSE", "entry_points.txt"}


def test_the_wheel_is_small_and_fits_every_system(wheel):
    size = wheel.stat().st_size / 1000
    print(f"{wheel.name}: {size:.0f} kB")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert size <= WHEEL_KB


def test_the_wheel_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        about = email.message_from_string(archive.read(name).decode())
        scripts = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert about["Name"] == "cacheupdater"
    assert about["License-Expression"] == "Apache-2.0"
    assert set(about.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert "cacheupdater = cacheupdater.__main__:main" in scripts
    assert re.search(r"^# \w+", about.get_payload()), "the readme must be the description"


def test_classifiers_name_the_pythons_that_were_run():
    said = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each}
    print(f"classifiers without a run here: {', '.join(sorted(said - set(HERE))) or 'none'}")
    assert set(HERE) <= said


def test_the_sdist_holds_the_sources_of_the_wheel_and_no_tests(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {each.split("/")[1] for each in archive.getnames() if "/" in each}
    assert tops == {
        "cacheupdater",
        "client",
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        ".gitignore",
    }


# --- how the wheel is installed ---------------------------------------------------------------------------------


def test_uvx_shows_the_demonstration(index, python, tmp_path):
    environment = {**CLEAN, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON_DOWNLOADS": "never"}
    began = time.monotonic()
    uvx = [TOOLS / "uvx", "--no-config", "--python", HERE[python], "--default-index", index]
    run(*uvx, "--from", "cacheupdater[demo]", *SHOWN, env=environment, cwd=tmp_path)
    print(
        f"Python {python}: uvx --from 'cacheupdater[demo]' {' '.join(SHOWN)}: {time.monotonic() - began:.0f} s"
    )


def test_pip_installs_the_client_alone_and_then_the_updater(index, python, tmp_path):
    run(HERE[python], "-m", "venv", tmp_path / "venv", env=CLEAN)
    inside = tmp_path / "venv/bin"
    pip = [inside / "python", "-m", "pip", "--isolated", "install", "--quiet", "--index-url", index]
    run(*pip, "cacheupdater", env=CLEAN)
    names = set(run(inside / "python", "-m", "pip", "list", "--format=freeze", env=CLEAN).split())
    assert {each.split("==")[0] for each in names} - {"pip", "setuptools"} <= {
        *("cacheupdater", "redis", "msgspec"),
        *("async-timeout", "PyJWT"),  # redis-py needs these, depending on its version and Python's
    }
    run(
        inside / "python",
        "-c",
        "import cacheupdater_client; cacheupdater_client.Redis()",
        env=CLEAN,
        cwd=tmp_path,
    )
    run(*pip, f"cacheupdater[{WHOLE}]", env=CLEAN)
    example = ROOT / "examples/cacheupdater.yaml"
    assert "product:{id:int}" in run(inside / "cacheupdater", "check", "-c", example, env=CLEAN, cwd=tmp_path)
    print(f"Python {python}: pip install, check: fine")


if __name__ == "__main__":
    sys.exit("run me by `make package`")
