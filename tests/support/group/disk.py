"""How late the disk of this machine is: a control for stories in which a database confirms what it has written."""

from __future__ import annotations

import os
from time import monotonic

from suite.pace import Metronome


class SlowestWrite(Metronome):
    """Writes to a file of its own, now and then, as a database does. `latest` is the most seconds that a write took."""

    BEAT_S = 0.2  # rarely: the control must not be the load

    def __init__(self, folder):
        super().__init__()
        self._path = folder / "slowest_write"

    def run(self):
        with self._path.open("wb", buffering=0) as file:
            while not self.ended.wait(self.BEAT_S):
                began = monotonic()
                file.write(b"written")
                os.fsync(file.fileno())
                self.latest = max(self.latest, monotonic() - began)
