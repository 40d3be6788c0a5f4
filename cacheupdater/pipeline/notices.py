"""Troubles that last, told to people: one line when one begins, few while it lasts, one when it is over.

The service makes one `Notices` per process; whoever meets a trouble says `trouble`, as often as it is met, and `over`
once it has ended. What stands right now is in the body of `/readyz`, so that a quiet log is no riddle. Nothing is decided
here, and nothing waits: whether a trouble exists is the business of those who call. Keys appear in no sentence, for keys
are data.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

Event: TypeAlias = Literal[
    "load_failed",  # subject: source
    "write_failed",  # subject: namespace
    "removal_refused",  # subject: namespace
    "braked",  # subject: namespace
    "foreign",  # subject: namespace
    "redis_down",  # subject: ""
    "commit_failed",  # subject: partition
    "fetch_failed",  # subject: partition
]
"""The kinds of trouble. In the log each is the field `event`, its subject the field `subject`."""

REPEAT_S = 60.0  # seconds between two lines about a trouble that lasts
STANDING_MAX = 1_000  # troubles remembered at once; of more, the oldest is forgotten without a last line


@dataclass(slots=True)
class Notice:
    """A trouble that stands."""

    event: Event
    subject: str
    began: float
    said: float
    text: str = ""  # the latest sentence about it
    times: int = 0


class Notices:
    """What is wrong in this process right now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._standing: dict[tuple[Event, str], Notice] = {}

    def trouble(self, event: Event, subject: str, text: str) -> None:
        """It has begun, or it goes on: said at once, then once a minute."""
        now = self._clock()
        notice = self._standing.get((event, subject))
        if notice is None:
            notice = self._begin(event, subject, now)
            self._say(logging.WARNING, notice, text)
        elif now - notice.said >= REPEAT_S:
            notice.said = now
            self._say(
                logging.WARNING, notice, f"{text} (for {now - notice.began:.0f} s, {notice.times + 1} times)"
            )
        notice.times += 1
        notice.text = text

    def over(self, event: Event, subject: str, cost: str = "") -> None:
        """It has ended; says nothing where no trouble stood. `cost` is what it cost, as a clause."""
        notice = self._standing.pop((event, subject), None)
        if notice is not None:
            lasted = self._clock() - notice.began
            times = f"{notice.times} times" + (f", {cost}" if cost else "")
            self._say(logging.INFO, notice, f"over after {lasted:.1f} s ({times})")

    def standing(self) -> list[Notice]:
        """In the order of their beginnings."""
        return list(self._standing.values())

    def _begin(self, event: Event, subject: str, now: float) -> Notice:
        while len(self._standing) >= STANDING_MAX:
            del self._standing[next(iter(self._standing))]
        notice = self._standing[event, subject] = Notice(event, subject, now, now)
        return notice

    def _say(self, level: int, notice: Notice, text: str) -> None:
        about = f"{notice.event} {notice.subject}".rstrip()
        log.log(level, "%s: %s", about, text, extra={"event": notice.event, "subject": notice.subject})
