"""Threads that run beside the block of a `with` and end with it: an application that reads, a clock that is watched."""

from __future__ import annotations

import threading


class Beside(threading.Thread):
    """A subclass says in `run` what the thread does until `ended` is set."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ended = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


class Repeated(Beside):
    """Calls `act` every so many seconds."""

    def __init__(self, every, act):
        super().__init__()
        self._every, self._act = every, act

    def run(self):
        while not self.ended.wait(self._every):
            self._act()
