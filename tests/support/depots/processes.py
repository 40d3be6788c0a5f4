"""Members of a depot as processes of their own, and what a test asks of several: who owns what, and what is done."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from suite.pace import PATIENCE_S

from cacheupdater.local.children import dying_with_us

MEMBER = Path(__file__).with_name("member.py")
PARTITIONS = 24  # each of three members has its share, whatever their random names are


def eventually(condition, timeout=PATIENCE_S):
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


class Member:
    """One process; what it says is read from its file."""

    def __init__(self, url, session, path):
        self._path = path
        with self._path.open("w") as out:
            command = [sys.executable, str(MEMBER), url, str(session)]
            self.process = subprocess.Popen(dying_with_us(command), stdout=out, stderr=subprocess.STDOUT)

    def _said(self, fact):
        whole = self._path.read_text().rpartition("\n")[0]  # the last line may be on its way
        lines = [line.split() for line in whole.splitlines()]
        return [words[1:] for words in lines if words and words[0] == fact]

    @property
    def gained(self):
        """When it gained each partition for the last time."""
        return {int(partition): float(when) for partition, when in self._said("gained")}

    @property
    def done(self):
        return [key for keys in self._said("done") for key in keys]

    def said(self, fact, what):
        return [what] in self._said(fact)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait()


def all_owned(*members):
    return set().union(*(each.gained for each in members)) == set(range(PARTITIONS))


def all_done(sent, members):
    return lambda: set(sent) <= set().union(*(each.done for each in members))


def keeps_its_owners(sent, members):
    """Whether no partition moves while three hundred keys are changed."""
    before, owned = len(sent), [each.gained for each in members]
    return eventually(lambda: len(sent) > before + 300) and owned == [each.gained for each in members]
