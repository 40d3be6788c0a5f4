"""An application of a pod as tests watch it: `beside_application.py` as a contained process that reads one key all the time.

For every 20 reads it prints the last value and the longest time of a read. Tests of both charts check whether it has noticed
anything of the updater.
"""

from __future__ import annotations

import json
import sys
import time

from live.updater_process import ROOT

PROGRAM = ROOT / "tests" / "support" / "live" / "beside_application.py"
KEY = "product:7"
SLOW_S = 0.25  # a read that waited for our code would take longer: the client's shortest timeout is a second


class Application:
    """One container without an updater in it."""

    def __init__(self, pod, container, *, redis_url, emit):
        """`emit` goes into the environment, as an operator would set it."""
        program = [sys.executable, str(PROGRAM), redis_url, KEY]
        self.contained = pod.contain(container, program, environment={"CACHEUPDATER_EMIT": emit})

    def start(self):
        self.contained.start()

    def kill(self):
        self.contained.kill()

    def heard(self):
        """The report of its last 20 reads."""
        line = self.contained.process.stdout.readline()
        assert line, self.contained.log
        return json.loads(line)

    def price(self):
        value = self.heard()["value"]
        return value and json.loads(value)["price"]

    def reads_for(self, seconds):
        """The reports of this time."""
        end, seen = time.monotonic() + seconds, []
        while time.monotonic() < end:
            seen.append(self.heard())
        return seen

    @property
    def alive(self):
        return self.contained.process.poll() is None


def none_waited(seen):
    """Whether at least half of these reports have no slow read; the machine may be to blame for the others."""
    return sorted(each["longest"] for each in seen)[len(seen) // 2] < SLOW_S
