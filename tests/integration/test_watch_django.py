"""Runs `watched_by_django` in processes of its own: the random programs in blocks of seeds, and the stories once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = "tests/integration/watched_by_django.py"


def passed(chosen, redis_url, pg_url, seeds=""):
    """Runs the chosen tests with the servers of this run. Returns how many have passed."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-n", "0", "-k", chosen, FILE]
    settings = {"REDIS_URL": redis_url, "PG_URL": pg_url, "WATCH_SEED": seeds}
    environment = {**os.environ, **settings}  # noqa: TID251  a whole process
    for name in [each for each in environment if each.startswith("PYTEST_")]:
        del environment[name]  # those of this run's own worker
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    return int(last.split(" passed")[0].split()[-1])


@pytest.mark.campaign(short=3, full=400, block=50)
def test_random_programs_of_django_invalidate_what_they_commit(seeds, redis_url, pg_url):
    assert passed("random", redis_url, pg_url, f"{seeds[0]}-{seeds[-1]}") == 3


def test_stories_of_a_django_application(redis_url, pg_url):
    assert passed("not random", redis_url, pg_url) > 20
