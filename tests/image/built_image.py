"""The built image as an operator sees it: what it contains, what it may do, how it starts and how it ends.

`make image` builds the image and calls this file by name; the suite does not collect this file. The tests print figures.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import select
import signal
import sqlite3
import stat
import subprocess
import time
from pathlib import Path

import pytest
import redis
from containers.box import UID, WRITABLE, Box, first_process

from cacheupdater_client import Redis

ROOT = Path(__file__).parents[2]
DRAIN_S = 10.0  # `run` promises to end so soon after a SIGTERM
READY_S = 30.0
STARTS = 3
SIZE_MB = 250  # of the packages; 200 were measured, 73 of them for numpy
BUILD_TOOLS = (
    *(
        "cc",
        "c++",
        "gcc*",
        "g++*",
        "clang*",
        "ld",
        "ld.bfd",
        "ld.gold",
        "as",
        "make",
        "cmake",
        "cargo",
        "rustc",
        "go",
    ),
    *("pip", "pip3*", "uv", "hatch", "hatchling", "git"),
)
LABELS = ("title", "description", "licenses", "source", "documentation", "version", "revision")


@pytest.fixture(scope="module")
def box():
    return Box(ROOT / "build/image/built.json")


@pytest.fixture(scope="module")
def files(box):
    """Every file of the image, with its status. Files that are mounted at run time do not belong to the image."""
    found = {}
    for folder, folders, names in os.walk(box.root):
        inside = Path("/", Path(folder).relative_to(box.root))
        if str(inside) in {"/proc", "/sys", "/dev", "/tmp"}:
            folders.clear()
            continue
        for name in (*folders, *names):
            if inside / name == Path("/tmp"):
                continue  # writable by all users, as on every system; a pod mounts a volume there
            found[str(inside / name)] = Path(folder, name).lstat()
    return found


@pytest.fixture
def settings(redis_url, tmp_path):
    """A configuration as a chart would mount it, with the user's own loader in /app."""
    tmp_path.chmod(0o755)
    app, etc = tmp_path / "app", tmp_path / "etc"
    app.mkdir()
    etc.mkdir()
    (app / "shop_loaders.py").write_text(
        "async def banners(slots):\n    return {slot: {'text': f'buy {slot}'} for slot in slots}\n"
    )
    config = {
        "version": 1,
        "listen": ["unix:///run/cacheupdater/hints.sock", "tcp://127.0.0.1:17270"],
        "cache": {"url": redis_url},
        "admin": {"listen": "127.0.0.1:9090"},
        "state": "/var/lib/cacheupdater/learned",
        "sources": {"main": {"budget": "100/s"}},
        "namespaces": {
            "banner": {
                "key": "banner:{slot}",
                "load": {"source": "main", "python": "shop_loaders:banners"},
                "refresh": {"every": "1s"},
            }
        },
    }
    (etc / "cacheupdater.yaml").write_text(json.dumps(config))
    return {"/etc/cacheupdater": etc, "/app": app}


def line_of(process, beginning, within=READY_S):
    deadline, seen = time.monotonic() + within, []
    while time.monotonic() < deadline:
        if not select.select([process.stdout], [], [], 0.1)[0]:
            assert process.poll() is None, process.stderr.read()
            continue
        seen.append(process.stdout.readline())
        if seen[-1].startswith(beginning):
            return seen[-1]
        assert seen[-1] or process.poll() is None, process.stderr.read()
    raise AssertionError(f"no {beginning!r} within {within} s: {seen}")


# --- what the image contains --------------------------------------------------------------------------------------


def test_the_image_says_what_it_is_and_how_it_starts(box):
    config = box.config
    assert config["Entrypoint"] == ["cacheupdater"]
    assert config["Cmd"] == ["run", "--config", "/etc/cacheupdater/cacheupdater.yaml"]
    assert config["User"] == "65532:65532"
    assert config["WorkingDir"] == "/app"
    assert "PYTHONSAFEPATH=1" in config["Env"]
    assert list(config["ExposedPorts"]) == ["9090/tcp"]
    labels = config["Labels"]
    assert all(labels[f"org.opencontainers.image.{each}"] for each in LABELS)
    assert re.fullmatch(r"[0-9a-f]{40}", labels["org.opencontainers.image.revision"])


def test_no_file_is_writable_by_all_users_or_runs_as_another_user(files):
    modes = {name: about.st_mode for name, about in files.items() if not stat.S_ISLNK(about.st_mode)}
    assert [name for name, mode in modes.items() if mode & stat.S_IWOTH] == []
    plain = {name: mode for name, mode in modes.items() if stat.S_ISREG(mode)}
    assert [name for name, mode in plain.items() if mode & (stat.S_ISUID | stat.S_ISGID)] == []


def test_the_images_user_owns_two_folders_and_nothing_else(files):
    assert {name for name, about in files.items() if about.st_uid == UID} == {
        f"/{each}" for each in WRITABLE[1:]
    }


def test_no_file_of_the_build_is_left(files):
    programs = [name for name in files if "/bin/" in name or "/sbin/" in name]
    found = [each for each in programs for tool in BUILD_TOOLS if fnmatch.fnmatch(Path(each).name, tool)]
    assert found == []
    left = re.compile(
        r"/build(/|$)|/\.cache|/pip/|hatchling|/image/|seal\.py|\.dist-info/direct_url|\.git(/|$)"
    )
    assert [name for name in files if left.search(name)] == []


def test_the_installed_packages_are_those_of_the_lock(box):
    from containers.lock import entries, wanted

    locked = {
        name: each.version
        for name, each in wanted(entries(ROOT / "image/requirements.lock"), box.root).items()
    }
    installed = {
        each["name"]: each["version"]
        for each in box.sbom["components"]
        if each["purl"].startswith("pkg:pypi/")
    }
    version = installed.pop("cacheupdater")
    assert installed == locked
    assert version == box.config["Labels"]["org.opencontainers.image.version"]


def test_its_bill_of_materials_is_cyclonedx(box):
    code = (
        "import sys\n"
        "from cyclonedx.schema import SchemaVersion\n"
        "from cyclonedx.validation.json import JsonStrictValidator\n"
        "sys.exit(str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()) or 0))"
    )
    tool = ROOT / "build/image-tools/bin/python"
    done = subprocess.run(
        [tool, "-c", code], check=False, input=json.dumps(box.sbom), capture_output=True, text=True
    )
    assert done.stderr == "0\n", done.stderr
    kinds = {each["purl"].split("/")[0] for each in box.sbom["components"]}
    assert kinds == {"pkg:pypi", "pkg:deb"}
    references = {each["bom-ref"] for each in box.sbom["components"]}
    needs = {each["ref"]: each["dependsOn"] for each in box.sbom["dependencies"]}
    assert references >= {*needs, *(one for each in needs.values() for one in each)}
    assert any(
        each.startswith("pkg:pypi/redis@") for each in needs[next(r for r in needs if "/cacheupdater@" in r)]
    )
    print(f"bill of materials: {len(references)} components")


def test_its_bill_of_materials_can_be_asked_from_within(box):
    """As the release does: it has no folder with the image's files."""
    with (ROOT / "image/sbom.py").open() as program:
        version = box.config["Labels"]["org.opencontainers.image.version"]
        done = box.run("-", "--version", version, entrypoint=["python"], stdin=program)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == box.sbom


def test_the_dockerfile_has_nothing_that_hadolint_finds():
    hadolint = ROOT / "build/image-tools/bin/hadolint"
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_workflows_have_nothing_that_their_schema_and_zizmor_find():
    files = sorted((ROOT / ".github/workflows").glob("*.yml"))
    for command in (
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
        ["zizmor", "--offline"],
    ):
        tool = ROOT / "build/image-tools/bin" / command[0]
        done = subprocess.run([tool, *command[1:], *files], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_packages_are_not_larger_than_their_limit(box):
    print(f"image {box.sizes['image']:.0f} MB with its Debian base, packages {box.sizes['packages']:.0f} MB")
    assert box.sizes["packages"] <= SIZE_MB


# --- what the image does ---------------------------------------------------------------------------------------


def test_the_root_is_read_only_and_the_process_has_the_images_user(box):
    code = (
        "import os, json; denied = {}\n"
        "for path in ('/', '/app', '/etc/cacheupdater', '/opt/cacheupdater/bin'):\n"
        "    try: open(path + '/x', 'w')\n"
        "    except OSError as e: denied[path] = e.errno\n"
        "open('/tmp/x', 'w'); open('/run/cacheupdater/x', 'w'); open('/var/lib/cacheupdater/x', 'w')\n"
        "status = dict(l.split(':', 1) for l in open('/proc/self/status'))\n"
        "print(json.dumps([sorted(denied), os.getuid(), os.getgid(), os.getgroups(), int(status['CapEff'], 16),"
        " status['NoNewPrivs'].strip()]))"
    )
    done = box.run("-c", code, entrypoint=["python"])
    assert done.returncode == 0, done.stderr
    everywhere = ["/", "/app", "/etc/cacheupdater", "/opt/cacheupdater/bin"]
    assert json.loads(done.stdout) == [everywhere, UID, UID, [], 0, "1"]


def test_the_command_prints_its_version(box):
    took = []
    for _ in range(STARTS):
        began = time.monotonic()
        done = box.run("--version")
        took.append(time.monotonic() - began)
        assert (
            done.stdout.strip() == f"cacheupdater {box.config['Labels']['org.opencontainers.image.version']}"
        )
    print(f"cacheupdater --version: {min(took):.2f} s")


def test_check_reads_the_mounted_configuration(box, settings):
    done = box.run("check", volumes=settings)
    assert done.returncode == 0, done.stderr
    assert "banner:{slot}" in done.stdout


def test_check_reads_the_example_as_the_workflow_mounts_it(box):
    done = box.run("check", volumes={"/etc/cacheupdater": ROOT / "examples"})
    assert done.returncode == 0, done.stderr


def test_run_gets_ready_writes_the_keys_that_are_read_and_drains(box, settings, redis_url):
    starts = []
    for again in range(STARTS):
        began = time.monotonic()
        container = box.start(volumes=settings)
        try:
            assert "/run/cacheupdater/hints.sock" in line_of(container, "ready")
            starts.append(time.monotonic() - began)
            with (
                redis.Redis.from_url(redis_url) as plain,
                Redis.from_url(redis_url, emit="tcp://127.0.0.1:17270") as application,
            ):
                key = f"banner:{again}"
                deadline = time.monotonic() + READY_S
                while plain.get(key) is None:
                    assert time.monotonic() < deadline
                    application.get(key)
                    time.sleep(0.05)
                assert json.loads(plain.get(key)) == {"text": f"buy {again}"}
            stopped = time.monotonic()
            os.kill(first_process(container), signal.SIGTERM)
            assert container.wait(timeout=DRAIN_S + 5) == 0, container.stderr.read()
            drained = time.monotonic() - stopped
        finally:
            container.kill()
            container.communicate()
        assert drained <= DRAIN_S
    print(f"run: ready after {min(starts):.2f} s, ended {drained:.2f} s after SIGTERM")


def test_the_demonstration_runs_in_it(box):
    began = time.monotonic()
    done = box.run("demo", "--duration", "10", "--plain", timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    print(f"demo --duration 10: {time.monotonic() - began:.0f} s")


def test_sqlite_files_of_the_user_can_be_read(box, settings, tmp_path, redis_url):
    """The driver needs the sqlite3 of the base image, which a slim Python might not have."""
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT)")
    shop.close()
    file = settings["/etc/cacheupdater"] / "cacheupdater.yaml"
    config = json.loads(file.read_text())
    config["sources"]["main"]["url"] = "sqlite+aiosqlite:////app/shop.db"
    config["namespaces"]["product"] = {
        "key": "product:{id:int}",
        "load": {"source": "main", "table": "products"},
    }
    file.write_text(json.dumps(config))
    (tmp_path / "shop.db").rename(settings["/app"] / "shop.db")
    done = box.run("check", "--connect", volumes=settings, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
