"""Which reads are reported too late to be worth a row, although each sender has a clock of its own.

One per process. Intake asks it for each pack of touches or misses; `age` is our time less the sender's. A pack does not name
its sender, so a clock that is off is known by its effect. While we have read all that there is, a pack is as good as new.
Then an age that turns up again and again is the fault of a clock, and an age that turns up once is a pack that was held up.
`now` is an argument; nothing is remembered for longer than `KNOWN_S`.
"""

from __future__ import annotations

LATE_S = 60.0  # a key that is still read has been read again by then
SPELL_S = 5.0  # sightings within so many seconds count once: packs that were held up arrive in one go
SIGHTINGS = 3  # until then a sender whose clock is off loses its reads
BIN_S = 10.0  # ages that differ by less belong to one clock
KNOWN_S = 3600.0  # since its last sighting
OFF_S = 5.0  # a smaller age is no fault of a clock: a pack may travel so long on a bad day
BINS_MAX = 100  # clocks known or suspected


class Lateness:
    """The clocks of all senders to one process."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}  # by age: sightings, when last
        self._ahead = (0.0, 0.0)  # how much, when last

    def is_late(self, age: float, now: float) -> bool:
        """Whether reads of this age are not worth a row."""
        return age > LATE_S and age - self.behind(now) > LATE_S

    def sighted(self, age: float, now: float) -> None:
        """A pack of this age has come, and nothing lies behind it on the queue."""
        if age < -OFF_S:
            self._ahead = (max(-age, self.ahead(now)), now)
        if age < OFF_S:
            return
        at = int(age / BIN_S)
        times, last = self._seen.get(at, (0, now - SPELL_S))
        if now - last >= SPELL_S:
            self._forget(now)
            self._seen[at] = (times + 1, now)

    def behind(self, now: float) -> float:
        """The most seconds by which a sender's clock is behind ours."""
        known = [
            at for at, (times, last) in self._seen.items() if times >= SIGHTINGS and now - last < KNOWN_S
        ]
        return (max(known) + 1) * BIN_S if known else 0.0

    def ahead(self, now: float) -> float:
        """The most seconds by which a sender's clock is ahead of ours."""
        much, last = self._ahead
        return much if now - last < KNOWN_S else 0.0

    def _forget(self, now: float) -> None:
        self._seen = {at: seen for at, seen in self._seen.items() if now - seen[1] < KNOWN_S}
        while len(self._seen) >= BINS_MAX:
            del self._seen[next(iter(self._seen))]
