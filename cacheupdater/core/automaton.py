"""The Block/Decline automaton of one key, as a table and nothing else.

`TABLE` holds all rules for what a hint does to a key. `dedup` carries them out for whole batches, and `docs/automaton.md` is
drawn from the table: `python -m cacheupdater.core.automaton` prints the page, and a test compares.

A key has no seat (INIT), a head that is due (DUE), a head that runs (PROCESS), a running head with one waiting
tail (BLOCK), or a seat that outlives its ended head (HELD). Two rules keep the table short:

1. A hint never takes back what a stronger one asked for: merging keeps the strongest kind and the highest urgency.
2. Only an end that wrote, or left a value alone, keeps the seat (FINISHED). Any other end (FAILED) makes the key due again,
   for the hints of the head and of its tail. A key that has failed too often by itself leaves memory, and its tail with it
   (QUARANTINED).

A fill is a touch whose reader was missing the value and has loaded it. It is a FILL only if it tells something new: the load
is younger than the last refresh, and a head that is due waits for mere touches. Any other fill is a plain touch: so a fill
takes nothing from a change, a miss, or a head that waits for its next try.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType


class State(Enum):
    """The state of a key."""

    __hash__ = object.__hash__  # each member exists once; Enum would hash its name, in Python, for every hint

    INIT = "Init"
    DUE = "Process, due"
    PROCESS = "Process, running"
    BLOCK = "Block"
    HELD = "Held"


class Event(Enum):
    """What happens to a key."""

    __hash__ = object.__hash__

    TOUCH = "touch after the hold"
    TOUCH_HELD = "touch within the hold"
    FILL = "fill by a reader, newer than the last refresh"
    MISS = "miss"
    MISS_SOON = "miss within the gap after an end"
    MISS_ABSENT = "miss of a row known to be absent"
    CHANGE = "change"
    STARTED = "tokens taken"
    FINISHED = "written, adopted, unchanged, duplicate, braked or foreign"
    FAILED = "refused, too old, undecided, error, evicted"
    QUARANTINED = "failed by itself for the last time"
    DROPPED = "dropped"
    OVER = "hold and gap over"


class Action(Enum):
    """What the automaton does about an event."""

    def __init__(self, _said: str) -> None:
        self.reason = self.name.lower()  # as the decisions are counted

    ACCEPT = "a new head, which waits until its gap is over"
    MERGE = "merged into the due head"
    BLOCK = "a tail waits"
    COVER = "covered by the tail"
    HOLD = "declined: held"
    FILLED = (
        "held as after a refresh: its reader has loaded it; a refresh that waited for touches is not needed"
    )
    DECLINE = "declined: the running load, or the value just written, serves it"
    ABSENT = "declined: absent"
    RUN = "load and write"
    KEEP = "the seat is kept until hold and gap are over"
    PROMOTE = "the tail becomes the head, with its own clock"
    AGAIN = "due again, with its hints, attempts and delay"
    FORGET = "the key leaves memory"


_S, _E, _A = State, Event, Action

TABLE = MappingProxyType(
    {
        (_S.INIT, _E.TOUCH): (_S.DUE, _A.ACCEPT),
        (_S.INIT, _E.FILL): (_S.HELD, _A.FILLED),
        (_S.INIT, _E.MISS): (_S.DUE, _A.ACCEPT),
        (_S.INIT, _E.MISS_SOON): (_S.INIT, _A.DECLINE),
        (_S.INIT, _E.MISS_ABSENT): (_S.INIT, _A.ABSENT),
        (_S.INIT, _E.CHANGE): (_S.DUE, _A.ACCEPT),
        (_S.DUE, _E.TOUCH): (_S.DUE, _A.MERGE),
        (_S.DUE, _E.FILL): (_S.HELD, _A.FILLED),
        (_S.DUE, _E.MISS): (_S.DUE, _A.MERGE),
        (_S.DUE, _E.CHANGE): (_S.DUE, _A.MERGE),
        (_S.DUE, _E.STARTED): (_S.PROCESS, _A.RUN),
        (_S.DUE, _E.DROPPED): (_S.INIT, _A.FORGET),
        (_S.PROCESS, _E.TOUCH_HELD): (_S.PROCESS, _A.HOLD),
        (_S.PROCESS, _E.TOUCH): (_S.BLOCK, _A.BLOCK),
        (_S.PROCESS, _E.FILL): (_S.PROCESS, _A.HOLD),
        (_S.PROCESS, _E.MISS): (_S.PROCESS, _A.DECLINE),
        (_S.PROCESS, _E.CHANGE): (_S.BLOCK, _A.BLOCK),
        (_S.PROCESS, _E.FINISHED): (_S.HELD, _A.KEEP),
        (_S.PROCESS, _E.FAILED): (_S.DUE, _A.AGAIN),
        (_S.PROCESS, _E.QUARANTINED): (_S.INIT, _A.FORGET),
        (_S.BLOCK, _E.TOUCH_HELD): (_S.BLOCK, _A.HOLD),
        (_S.BLOCK, _E.TOUCH): (_S.BLOCK, _A.COVER),
        (_S.BLOCK, _E.FILL): (_S.BLOCK, _A.HOLD),
        (_S.BLOCK, _E.MISS): (_S.BLOCK, _A.DECLINE),
        (_S.BLOCK, _E.CHANGE): (_S.BLOCK, _A.COVER),
        (_S.BLOCK, _E.FINISHED): (_S.DUE, _A.PROMOTE),
        (_S.BLOCK, _E.FAILED): (_S.DUE, _A.AGAIN),
        (_S.BLOCK, _E.QUARANTINED): (_S.INIT, _A.FORGET),
        (_S.HELD, _E.TOUCH_HELD): (_S.HELD, _A.HOLD),
        (_S.HELD, _E.TOUCH): (_S.DUE, _A.ACCEPT),
        (_S.HELD, _E.FILL): (_S.HELD, _A.FILLED),
        (_S.HELD, _E.MISS_SOON): (_S.HELD, _A.DECLINE),
        (_S.HELD, _E.MISS): (_S.DUE, _A.ACCEPT),
        (_S.HELD, _E.MISS_ABSENT): (_S.HELD, _A.ABSENT),
        (_S.HELD, _E.CHANGE): (_S.DUE, _A.ACCEPT),
        (_S.HELD, _E.OVER): (_S.INIT, _A.FORGET),
    }
)


_WORDS = (
    "- *Head*: the refresh of a key that is due or runs. *Tail*: the refresh that waits behind a running head.",
    "- *Hold*: the time after a head's start in which touches are declined: `refresh.every` with a fixed interval, the gap with `price`.",
    "- *Fill*: a touch whose reader has loaded the value itself, with the token of that load. A fill that tells nothing new, or that is not believed, is a touch; so is every fill of a due key that waits for more than touches.",
    "- *Gap*: 100 ms. A start for a read comes at least a gap after the last start; a start for a change, after the last start for a change.",
    "- *Tokens taken*: the budget has paid, and the head runs. *Evicted*: the head was given up 3 s after its start.",
)


def _page() -> str:
    """The page as it is committed: a state diagram and the table, both drawn from TABLE."""
    rows = [(s, e, t, a) for (s, e), (t, a) in TABLE.items()]
    arrows = [f"    {s.name} --> {t.name}: {e.value}" for s, e, t, _ in rows if s is not t]
    stays = [f"    {s.name} --> {s.name}: {e.value}" for s, e, t, _ in rows if s is t]
    names = [f'    state "{s.value}" as {s.name}' for s in State]
    lines = [f"| {s.value} | {e.value} | {t.value} | {a.value} |" for s, e, t, a in rows]
    return "\n".join(
        [
            "# The Block/Decline automaton",
            "",
            "Drawn from `cacheupdater/core/automaton.py` by `make diagram`; a test fails when this page is out of date.",
            "",
            *_WORDS,
            "",
            "```mermaid",
            "stateDiagram-v2",
            *names,
            "    [*] --> INIT",
            *arrows,
            *stays,
            "```",
            "",
            "| state | event | next state | what is done |",
            "| --- | --- | --- | --- |",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    print(_page(), end="")  # noqa: T201  the page is this module's output when it is run
