"""The base install has only redis-py, msgspec and the client. Its tests run with nothing more."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.prove

ROOT = Path(__file__).parents[2]
TEST_TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout")  # what runs the tests is no part of the install
HEAVY = (
    "aiokafka",
    "aiosqlite",
    "asyncpg",
    "django",
    "dogpile",
    "flask_caching",
    "hiredis",
    "prometheus_client",
    "pydantic",
    "sqlalchemy",
    "uvloop",
)
INSTALL_S = 120  # from a slow index; usually 15 s


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An interpreter with the base install alone, as `pip install cacheupdater` makes it."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        interpreter,
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]
    install = [*pip, "--no-compile", str(ROOT), *TEST_TOOLS]
    done = run(install, timeout=INSTALL_S)
    assert done.returncode == 0, done.stderr
    return interpreter


def run(command, **options):
    """Apart from this checkout and its interpreter: only what is installed there is found."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **options)


@pytest.mark.timeout(300)
def test_the_base_install_runs_the_tests_of_the_client(python):
    # importlib mode imports test files by path; the pythonpath of pyproject.toml brings tests/support
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(ROOT / "tests" / "unit" / "client"),
    ]

    done = run(command, cwd=ROOT, timeout=200)

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout


def test_the_base_install_brings_nothing_heavy(python):
    code = f"import importlib.util as u; print([name for name in {HEAVY} if u.find_spec(name)])"

    assert run([python, "-c", code]).stdout.strip() == "[]"


def test_the_command_says_what_the_base_install_lacks(python):
    done = run([python, "-m", "cacheupdater", "run", "-c", str(ROOT / "nothing.yaml")], timeout=30)

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "the updater needs more packages; run: pip install 'cachetools>=6' " in done.stderr
