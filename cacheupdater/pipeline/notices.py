"""Troubles that last, reported to people: one line when a trouble begins, few while it lasts, one when it is over.

The service makes one `Notices` per process. A caller that meets a trouble calls `trouble`, each time that it meets the
trouble, and `over` once the trouble has ended. `/readyz` lists the troubles that stand now, so that a quiet log is no riddle.
Nothing is decided here, and nothing waits: the callers know whether a trouble exists. No sentence names a key, for keys are
data. `core.events` lists the kinds of trouble.

A trouble that comes back within `QUIET_S` of its end has not ended: it comes and goes. From then on it is over only after
`QUIET_S` without it, which `tick` notices. So an outage during which some calls succeed has one line at each end too. If a line
has told its end, another line tells at once that the trouble is back, and why: an end must not be the log's last word on a
trouble that stands. A trouble that ended within `SHORT_S` may be of either kind. It does not stand, and its end is logged after
`QUIET_S`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cacheupdater.core.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cacheupdater.core.events import Event

log = logging.getLogger(__name__)

REPEAT_S = 60.0  # seconds between two lines about a trouble that lasts
QUIET_S = 10.0  # seconds: longer than any back-off, so every retry has had its turn
SHORT_S = 1.0  # seconds; the end of a shorter trouble would be logged right after its beginning
_MOMENT_S = 0.05  # seconds; a line would show less as 0.0 s
STANDING_MAX = 1_000  # troubles remembered at once; beyond it, the oldest is forgotten without a last line

_FATES: Mapping[Event, str] = {
    "foreign": "left alone",
    "braked": "left alone",
    "dropped": "dropped",
    "late": "dropped",
}
"""What becomes of the keys of a trouble, where the updater has not tried to refresh them, and failed."""

_ANSWERS: frozenset[Event] = frozenset({"reload_refused"})
"""Troubles that come of what somebody has just asked for, and who looks into the log for the answer: each time is an error."""


@dataclass(slots=True)
class Notice:
    """A trouble that stands, or has just ended."""

    event: Event
    subject: str
    began: float
    said: float
    text: str = ""  # the latest sentence about it
    times: int = 0
    keys: int = 0  # tried in vain, or left alone; a key counts each time
    ended: float | None = None
    restless: bool = False  # it has come back after an end
    unsaid: bool = False  # it has ended, and no line has said so yet

    @property
    def cost(self) -> str:
        """How often the trouble was met, and what became of its keys, in words."""
        often = "once" if self.times == 1 else f"{self.times} times"
        fate = _FATES.get(self.event, "tried in vain")
        return often + (f", {counted(self.keys, 'key')} {fate}" if self.keys else "")


class Notices:
    """The troubles of one process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[tuple[Event, str], Notice] = {}

    def trouble(
        self, event: Event, subject: str, text: str, *, keys: int = 0, error: BaseException | None = None
    ) -> None:
        """The trouble has begun, or lasts. It is logged at once, and then once a minute.

        `keys` were tried in vain, or left alone, this time. The traceback of `error` is logged with the first line.
        """
        now = self._clock()
        known = self._known.get((event, subject))
        begins = known is None or self._rests(known, now)
        notice = self._begin(event, subject, now) if known is None or begins else known
        notice.times, notice.keys, notice.text = notice.times + 1, notice.keys + keys, text
        if begins:
            self._say(_level(event), notice, text, state="begins", error=error)
        else:
            is_back = notice.ended is not None and not notice.unsaid
            notice.restless |= notice.ended is not None
            notice.ended, notice.unsaid = None, False
            if is_back or now - notice.said >= REPEAT_S or event in _ANSWERS:
                first, end, rest = text.partition("\n")
                said = f"{first} ({_lasts(notice, now)}){end}{rest}"
                self._say(_level(event), notice, said, state="lasts")

    def over(self, event: Event, subject: str, cost: str = "") -> None:
        """The trouble has ended. Nothing is logged if it did not stand. `cost` is a clause that says what it cost."""
        notice = self._known.get((event, subject)) if self._known else None
        if notice is None or notice.ended is not None:
            return
        notice.ended = self._clock()
        if notice.restless or notice.ended - notice.began < SHORT_S:
            notice.unsaid = True
        else:
            self._say_end(notice, cost)

    def all_over(self, subjects: Collection[str]) -> None:
        """All troubles with these subjects have ended: the configuration does not name the subjects any more."""
        for notice in list(self._known.values()):
            if notice.subject in subjects:
                self.over(notice.event, notice.subject)

    def tick(self) -> None:
        """Called about once a second: ends the troubles that have not come back for long enough."""
        now = self._clock()
        for at, notice in list(self._known.items()):
            if self._rests(notice, now):
                del self._known[at]

    def standing(self) -> list[Notice]:
        """The troubles that stand, in the order of their beginnings."""
        return [each for each in self._known.values() if each.ended is None or each.restless]

    def plain(self) -> list[dict[str, object]]:
        """The troubles that stand, for JSON. Of a text of several lines, the first: the log has the others."""
        now = self._clock()
        return [
            {
                "event": each.event,
                "subject": each.subject,
                "text": each.text.partition("\n")[0],
                "seconds": round(now - each.began, 1),
                "times": each.times,
            }
            for each in self.standing()
        ]

    def _rests(self, notice: Notice, now: float) -> bool:
        """Whether the trouble is over for good. If so, its end has been logged by now."""
        if notice.ended is None or now - notice.ended < QUIET_S:
            return False
        if notice.unsaid:
            notice.unsaid = False
            self._say_end(notice)
        return True

    def _begin(self, event: Event, subject: str, now: float) -> Notice:
        self._known.pop((event, subject), None)
        while len(self._known) >= STANDING_MAX:
            del self._known[next(iter(self._known))]
        notice = self._known[event, subject] = Notice(event, subject, now, now)
        return notice

    def _say_end(self, notice: Notice, cost: str = "") -> None:
        lasted = (notice.ended or notice.began) - notice.began
        costs = notice.cost + (f", {cost}" if cost else "")
        took = f"after {lasted:.1f} s" if lasted >= _MOMENT_S else "at once"
        self._say(logging.INFO, notice, f"over {took} ({costs})", state="over", seconds=lasted)

    def _say(
        self,
        level: int,
        notice: Notice,
        text: str,
        *,
        state: Literal["begins", "lasts", "over"],
        seconds: float | None = None,
        error: BaseException | None = None,
    ) -> None:
        notice.said = self._clock()
        about = f"{notice.event} {notice.subject}".rstrip()
        fields: dict[str, object] = {"event": notice.event, "subject": notice.subject, "state": state}
        if state != "begins":
            lasted = notice.said - notice.began if seconds is None else seconds
            fields |= {"seconds": round(lasted, 3), "times": notice.times, "keys": notice.keys}
        log.log(level, "%s: %s", about, text, exc_info=error and _without_text(error), extra=fields)


def _level(event: Event) -> int:
    return logging.ERROR if event in _ANSWERS else logging.WARNING


def _without_text(error: BaseException) -> BaseException:
    """The kind and the place of the error, without its text, which may quote data."""
    shown = RuntimeError(f"{type(error).__name__} (its text is hidden, for it may quote data)")
    return shown.with_traceback(error.__traceback__)


def _lasts(notice: Notice, now: float) -> str:
    often = f"{notice.times} times"
    return f"for {now - notice.began:.0f} s, {often}" + (", comes and goes" if notice.restless else "")
