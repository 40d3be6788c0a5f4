"""`automaton.TABLE` held to what the model saw happen: so the table, and the page that is drawn from it, cannot lie.

For each event of a key the model names the state before, the event, the action and the state after. The real engine is
compared with the model after every event. A transition without a row, or with a row that says otherwise, is a violation. A
`Rows` counts how often each row was taken, and lives as long as a story.
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
    "decline": Action.DECLINE,
    "absent": Action.ABSENT,
}
"""What the model says about a hint, in the table's words."""


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
