"""Which rows of a table to read next, if all that tells of a change is a column that grows, such as `updated_at`.

`adapters.feed_poll` keeps one `Watermark` per table, asks it for the next `Look`, and gives it the rows that the look found.
It lives from a start of the feed to the next. Rows, values and clocks are the adapter's; nothing here compares two values.

The *front* is the last place that was read. A transaction takes the value of its column early and commits late, so its rows may
appear before the front. Hence the watermark remembers where the front was when. If a transaction commits within the *overlap*,
its rows lie behind the front of its beginning. All rows before the *settled* place were read after the last of these
transactions had committed. So there are three kinds of looks:

- ahead, from the front on, every few seconds: new rows, until no more are found;
- near, over what the looks ahead have just passed: most late commits are late by milliseconds;
- back, from the settled place to the front, several times per overlap. It makes the next settled place.

A row that a look finds again is not told again, if it has a version: a second change of the row may take the same value, where
the column counts whole seconds. Memory is bounded: beyond the bound rows are told again, which is harmless.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

# s: a column may count whole seconds. A value that was visible may be taken again until its second is over
TICK_S = 1.0
BACK_PER_OVERLAP = 8  # looks back per overlap: each row is read about so often
PAST_MAX = 128  # remembered places of the front; half of them are forgotten beyond, which costs only reads


class Place(NamedTuple):
    """A place in the order of the column, then of the key. Without a key: before all rows of this value."""

    value: Hashable
    key: tuple[Hashable, ...] = ()


class Kept(NamedTuple):
    """What a restarted reader needs. None: the table had no row."""

    settled: Place | None
    front: Place | None


class Row(NamedTuple):
    """A row as a look has found it."""

    place: Place
    version: Hashable  # names the row and its last change; None: nothing does, and it is told each time
    early: bool = False  # its value lies in the future by the database's clock, so the front must not follow


class Look(NamedTuple):
    """Rows to read: those behind `after`, to the value of `until` at most."""

    kind: Literal["ahead", "near", "back"]
    after: Place | None
    until: Place | None
    began: float  # by the database's clock, as all times here


class Watermark:
    """One table."""

    def __init__(self, kept: Kept, *, overlap: float, every: float, told_max: int) -> None:
        """Seconds. `told_max` rows are remembered, so that they are not told again."""
        self._settled, self._front = kept
        self._overlap = overlap
        self._every = every
        self._told_max = told_max
        self._told: dict[Hashable, float] = {}  # by version, when the row was last found
        self._past: deque[tuple[float, Place | None]] = deque()  # since when the front was known there
        self._open: dict[str, Look] = {}
        self._due = self._back_due = 0.0
        self._last_back = 0.0

    @property
    def kept(self) -> Kept:
        """Where to go on after a restart, if all rows that were returned so far have been told."""
        return Kept(self._settled, self._front)

    def wait(self, now: float) -> float:
        """Seconds until a look is due."""
        return 0.0 if self._open else max(0.0, self._due - now)

    def look(self, now: float) -> Look | None:
        """What to read now. The kinds take turns, so that a long look delays no other."""
        if now >= self._due and "ahead" not in self._open:
            self._due = now + self._every
            self._open["ahead"] = Look("ahead", self._front, None, now)
        if now >= self._back_due and "back" not in self._open:
            self._back_due = now + max(self._overlap / BACK_PER_OVERLAP, self._every)
            if self._settled == self._front:
                self._forget(now - self._overlap)
            else:
                self._open["back"] = Look("back", self._settled, self._front, now)
        return next(iter(self._open.values()), None)

    def found(self, look: Look, rows: Sequence[Row], *, more: bool, now: float) -> list[Row]:
        """The rows to tell. `more`: the look goes on behind the last of them. `now`: after the rows were read."""
        new = [row for row in rows if self._is_new(row, now)]
        if look.kind == "ahead":
            self._advance(rows, now)
        del self._open[look.kind]
        if more:  # it goes behind the others
            self._open[look.kind] = look._replace(after=rows[-1].place)
        else:
            self._end(look, now)
        return new

    def _advance(self, rows: Sequence[Row], now: float) -> None:
        on_time = [row.place for row in rows if not row.early]
        if on_time:
            self._front = on_time[-1]
        from_now_on = now + TICK_S
        last, place = self._past[-1] if self._past else (-inf, self._settled)
        if place != self._front and from_now_on >= last + 2 * self._overlap / PAST_MAX:
            self._past.append((from_now_on, self._front))
        if len(self._past) > PAST_MAX:
            self._past = deque(islice(self._past, 0, None, 2))

    def _end(self, look: Look, now: float) -> None:
        if look.kind == "back":
            self._forget(self._last_back)  # what neither this look has found nor one since the last
            self._last_back = look.began
            self._settle(look.began - self._overlap)
        elif look.kind == "ahead":
            near = next((place for since, place in reversed(self._past) if since <= now - self._every), None)
            if near is not None and near != self._front and "near" not in self._open:
                self._open["near"] = Look("near", near, self._front, now)

    def _settle(self, before: float) -> None:
        """Rows before the front of that time can appear no more, and a look back has passed them since."""
        while self._past and self._past[0][0] <= before:
            self._settled = self._past.popleft()[1]

    def _forget(self, before: float) -> None:
        self._told = {each: at for each, at in self._told.items() if at >= before}

    def _is_new(self, row: Row, now: float) -> bool:
        if row.version is None:
            return True
        is_new = row.version not in self._told
        if not is_new or len(self._told) < self._told_max:
            self._told[row.version] = now
        return is_new
