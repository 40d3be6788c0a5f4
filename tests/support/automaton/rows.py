"""Checks `automaton.TABLE` against the model's transitions. So the table, and the page drawn from it, are true.

For each event of a key the model names the state before, the event, the action and the state after. The real engine is
compared with the model after every event. A transition is a violation if it has no row, or if its row differs. A `Rows`
counts how often each row was taken, and lives as long as a story.
"""

from __future__ import annotations

from collections import Counter

from cacheupdater.core.automaton import TABLE, Action, Event, State

Row = tuple[State, Event]

DONE = {
    "accept": Action.ACCEPT,
    "merge": Action.MERGE,
    "block": Action.BLOCK,
    "cover": Action.COVER,
    "hold": Action.HOLD,
    "filled": Action.FILLED,
    "decline": Action.DECLINE,
    "absent": Action.ABSENT,
}
"""The model's results for a hint, in the table's words."""


class Rows:
    """The rows that one story took."""

    def __init__(self) -> None:
        self.taken: Counter[Row] = Counter()

    def take(self, row: Row, action: Action, after: State) -> None:
        """One transition of one key."""
        if TABLE.get(row) != (after, action):
            before, event = row
            raise AssertionError(
                f"{before}, {event}: {action}, then {after}; the table says {TABLE.get(row)}"
            )
        self.taken[row] += 1
