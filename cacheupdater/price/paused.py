"""What the policy knows of a paused namespace stands still: no key of it is asked for, and none counts as unread meanwhile.

The engine does not tell a policy of reads while their namespace is paused. Without this module their absence would teach that
nobody reads the keys, and `tick` would go on asking for them. When the pause is over, the keys are as if their last reads had
come later by the time that the pause lasted. One per policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cacheupdater.price.table import SPACE, TOUCHED

if TYPE_CHECKING:
    from collections.abc import Collection

    from cacheupdater.core.namespace import Namespace
    from cacheupdater.price.spaces import Spaces
    from cacheupdater.price.table import Rows, Table

LOOK_AGAIN_S = 1.0  # seconds until a paused key's turn comes again: about as often as pauses are looked for


class Paused:
    """The paused namespaces of one policy."""

    def __init__(self, table: Table, spaces: Spaces) -> None:
        self._table = table
        self._spaces = spaces
        self._since: dict[int, float] = {}  # by the number of the namespace

    def follow(self, namespaces: Collection[Namespace], now: float) -> None:
        """These namespaces are paused from now on, and no others. Those without terms do not concern us."""
        number = self._spaces.number
        paused = {number[each] for each in namespaces if each in number}
        for over in self._since.keys() - paused:
            self._resume(over, now - self._since.pop(over))
        for begun in paused - self._since.keys():
            self._since[begun] = now

    def awake(self, rows: Rows, now: float) -> Rows:
        """Those of these rows that are not paused. The others have their turn again later."""
        if not self._since or not len(rows):
            return rows
        asleep = np.isin(self._table.state[rows, SPACE], list(self._since))
        self._table.due[rows[asleep]] = now + LOOK_AGAIN_S
        return rows[~asleep]

    def _resume(self, space: int, lasted: float) -> None:
        high = self._table.high
        mine = np.flatnonzero(self._table.state[:high, SPACE] == space)
        self._table.times[mine, TOUCHED] += lasted
