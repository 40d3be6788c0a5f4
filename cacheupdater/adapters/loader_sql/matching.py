"""Finds the key of each row of a result, and makes the value from the row. No I/O, and no knowledge of databases.

A `SqlLoader` makes one `Matching` and calls it after each statement. The simulation of the whole service uses it too, with
rows of its own. The result must have a column for each capture, by its name. A key's value is its row as a dict, with the
captured columns, or only with the columns that `columns` names. With `rows="many"` the value is a list of such dicts, in the
order of the result. A `stamp` column tells about each row's last change (`stamps`).

An absent row deletes its key, so only a complete read is matched: a row of no requested key, or two rows for a key that may
have one, fail the whole statement. No error text holds a value.
"""

from __future__ import annotations

from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cacheupdater.adapters.loader_sql import stamps
from cacheupdater.core.words import counted
from cacheupdater.errors import Faulty, Misconfigured
from cacheupdater.ports import Stamped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cacheupdater_client.protocol.patterns import Captures

RowsPerKey: TypeAlias = Literal["one", "many"]
Result: TypeAlias = "tuple[Sequence[str], Sequence[Sequence[Any]]]"
"""The names of the columns, and the rows with their values in the same order."""

_Places: TypeAlias = "tuple[Callable[..., object], Sequence[str], Callable[..., Iterable[object]] | None]"


class Matching:
    """The matching of one loader."""

    def __init__(
        self,
        names: Sequence[str],
        columns: Sequence[str] | None = None,
        *,
        rows: RowsPerKey = "one",
        stamp: stamps.Stamp | None = None,
    ) -> None:
        """`names` are the pattern's captures."""
        if stamp and rows == "many":
            raise Misconfigured(f"the column {stamp[0]!r} can tell of one row per key, not of rows: many")
        self._names = names
        self._columns = columns
        self._rows = rows
        self._stamp = stamp
        self._seen: Sequence[str] = ()
        self._places: _Places

    def match(
        self, keys: Sequence[Captures], bound: Sequence[Captures], result: Result, *, asked: float
    ) -> Mapping[Captures, object]:
        """The value of each key that has a row.

        `bound` are the keys as the database holds them. `asked` is when the statement began, in seconds since 1970.
        """
        names, rows = result
        if names != self._seen:  # the first result, or the table has changed
            self._places, self._seen = self._placed(names), names
        if not rows:
            return {}
        locate, shown, pick = self._places
        single = len(self._names) == 1
        wanted: dict[object, Captures] = dict(
            zip(map(itemgetter(0), bound) if single else bound, keys, strict=True)
        )
        try:
            owners = list(map(wanted.__getitem__, map(locate, rows)))
        except (KeyError, TypeError):  # TypeError: a column of lists
            raise self._foreign(wanted, [locate(row) for row in rows]) from None
        picked = rows if pick is None else map(pick, rows)
        values = map(dict, map(zip, repeat(shown), picked))  # no loop in Python: half the cost of a row
        found = self._grouped(owners, values)
        if self._stamp is None:
            return found
        column, kind = self._stamp
        marks = zip(owners, map(itemgetter(names.index(column)), rows), strict=True)
        return Stamped(found, stamps.read(kind, marks, asked=asked))

    def _placed(self, names: Sequence[str]) -> _Places:
        """Where a row holds its captures, and which of its columns make the value."""
        shown = self._columns or names
        stamp = self._stamp[:1] if self._stamp else ()
        for name in (*self._names, *shown, *stamp):
            if names.count(name) != 1:
                fault = "does not return" if name not in names else "returns twice"
                hint = "; each capture needs a column of its name (AS)" if name in self._names else ""
                raise Faulty(
                    f"the statement {fault} the column {name!r}; it returns {', '.join(names)}{hint}"
                )
        if shown is names:
            return itemgetter(*map(names.index, self._names)), shown, None
        at = [names.index(name) for name in shown]
        pick = itemgetter(*at) if len(at) > 1 else itemgetter(slice(at[0], at[0] + 1))
        return itemgetter(*map(names.index, self._names)), shown, pick

    def _grouped(self, owners: Sequence[Captures], values: Iterable[object]) -> Mapping[Captures, object]:
        if self._rows == "one":
            found = dict(zip(owners, values, strict=True))
            if len(found) < len(owners):
                raise Faulty(
                    f"the statement returns {len(owners)} rows for {counted(len(found), 'key')}; one row per key is expected (rows: many)"
                )
            return found
        groups: dict[Captures, list[object]] = {}
        for owner, value in zip(owners, values, strict=True):
            groups.setdefault(owner, []).append(value)
        return groups

    def _foreign(self, wanted: Mapping[object, Captures], located: Sequence[object]) -> Faulty:
        """The error for rows of no requested key, with the usual reason: the column is of another type than the capture."""
        known = next(iter(wanted))
        strange = [each for each in located if not isinstance(each, type(known)) or each not in wanted]
        expected, got = (value if isinstance(value, tuple) else (value,) for value in (known, strange[0]))
        kinds = [
            f"column {name!r} holds {type(b).__name__} where the key holds {type(a).__name__}"
            for name, a, b in zip(self._names, expected, got, strict=True)
            if not isinstance(b, type(a))
        ]
        return Faulty(
            f"{len(strange)} of {len(located)} rows are of no key that was asked for; "
            + ("; ".join(kinds) or f"compare {', '.join(self._names)} exactly, in case and blanks too")
        )
