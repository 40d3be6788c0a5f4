"""A fork of the warm process ends, prints and dies as the command does that starts anew."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from live import warm

from cacheupdater.cli import exits

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the suite forks on Linux alone, where a fork dies with its parent"
)

FILE = """\
version: 1
queue: {url: "memory://"}
cache: {url: "${CACHE}"}
sources: {main: {url: "sqlite+aiosqlite:///shop.db", budget: 10/s}}
namespaces: {product: {key: "product:{id:int}", load: {source: main, table: products}}}
"""


@pytest.fixture
def both(monkeypatch, tmp_path):
    """both(*words): what a fork says and what the command says, in a folder with a file."""
    (tmp_path / "shop.yaml").write_text(FILE)

    def run(*words, **surroundings):
        said = []
        for allowed in (True, False):
            monkeypatch.setattr(warm.Fork, "allowed", allowed)
            said.append(warm.run(*words, folder=tmp_path, environment=surroundings))
        return said

    return run


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("check", "-c", "shop.yaml"), exits.OK),
        (("check", "-c", "none.yaml"), exits.CONFIG),
        (("run", "--workers", "2", "-c", "shop.yaml"), exits.CONFIG),
        (("run", "--no-such-option"), exits.USAGE),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_fork_ends_and_prints_as_the_command_does(both, words, code):
    fork, command = both(*words, CACHE="redis://127.0.0.1:1/0")
    assert fork.returncode == command.returncode == code
    assert (fork.stdout, fork.stderr) == (command.stdout, command.stderr)
    assert fork.stdout or fork.stderr


def test_a_fork_has_the_environment_that_the_test_gives_it(both):
    fork, command = both("check", "-c", "shop.yaml", CACHE="nonsense")
    assert fork.returncode == command.returncode == exits.CONFIG
    assert "cache.url: must be a URL" in fork.stderr
    assert fork.stderr == command.stderr


@pytest.fixture
def running(monkeypatch, tmp_path):
    """A fork that serves."""
    monkeypatch.setattr(warm.Fork, "allowed", True)
    (tmp_path / "shop.yaml").write_text(FILE)
    surroundings = {"CACHE": "redis://127.0.0.1:1/0"}
    with (tmp_path / "log").open("ab") as log:
        fork = warm.start(("run", "-c", "shop.yaml"), err=log, environment=surroundings, folder=tmp_path)
    with fork.stdout:
        yield fork
    fork.kill()
    fork.wait()


def test_a_fork_is_seen_to_run_and_how_it_was_killed(running):
    assert running.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(0.0)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    running.send_signal(signal.SIGTERM)  # it has ended, so nobody else gets the signal


def test_a_command_with_settings_of_python_itself_is_no_fork(monkeypatch, tmp_path):
    monkeypatch.setattr(warm.Fork, "allowed", True)
    with (tmp_path / "log").open("ab") as log:
        process = warm.start(("--version",), err=log, environment={"PYTHONUTF8": "1"})
    with process.stdout as said:
        assert isinstance(process, subprocess.Popen)
        assert said.read().startswith(b"cacheupdater ")
    assert process.wait() == exits.OK
