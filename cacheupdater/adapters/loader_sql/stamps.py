"""What a row says about its own last change: a version, or the time since the change.

A `SqlLoader` with such a column calls `read` once per load, with the column's values as the driver returns them. A value that
cannot be read gives no stamp, and never an error: the rest of the row is good. The changes of a key without a stamp are
learned from the writer's answers, as everywhere else.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cacheupdater_client.protocol.patterns import Captures

Kind: TypeAlias = Literal["version", "age"]
Stamp: TypeAlias = tuple[str, Kind]
"""The column, and what it holds: a number that grows with each change, or the time of the last one."""


def read(kind: Kind, marks: Iterable[tuple[Captures, object]], *, asked: float) -> Mapping[Captures, float]:
    """The stamps of the rows that have one. `asked` is when the statement began, in seconds since 1970."""
    said = _number if kind == "version" else _since_1970
    found = {owner: number for owner, mark in marks if (number := said(mark)) is not None}
    if kind == "version":
        return found
    # a row may change between `asked` and its snapshot, and a server's clock may be ahead
    return {owner: max(0.0, asked - moment) for owner, moment in found.items()}


def _since_1970(mark: object) -> float | None:
    """Seconds since 1970. A time without a zone means UTC. A date has no time: an age from midnight would be hours wrong."""
    if isinstance(mark, str):
        try:
            mark = datetime.fromisoformat(mark) if ":" in mark else None
        except ValueError:
            return None
    if isinstance(mark, datetime):
        return (mark if mark.tzinfo else mark.replace(tzinfo=UTC)).timestamp()
    return _number(mark)


def _number(mark: object) -> float | None:
    if isinstance(mark, bool) or not isinstance(mark, int | float | Decimal):
        return None
    try:
        number = float(mark)
    except (OverflowError, ValueError):  # a huge integer, a signalling NaN
        return None
    return number if math.isfinite(number) else None
