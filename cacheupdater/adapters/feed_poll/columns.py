"""What the types of columns mean to a feed that polls: which may be polled by, and how the clock of the database compares.

`table` asks about columns, `feed` about values. SQLite has values with types and columns with hints, so its values count there.
A column may be polled by if its values sort as time passes: times, whole numbers, and texts such as ISO 8601. Days are too coarse,
floats are not exact, and other types have no such order.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from sqlalchemy import types

from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cacheupdater.feed_ports import Cell

Kind: TypeAlias = Literal["zoned", "zoneless", "whole", "text"]

CLOCKS = {
    "postgresql": "SELECT extract(epoch FROM clock_timestamp())::float8, localtimestamp",
    "sqlite": "SELECT (julianday('now') - 2440587.5) * 86400.0, NULL",
    "mysql": "SELECT unix_timestamp(now(6)), now(6)",
    "mariadb": "SELECT unix_timestamp(now(6)), now(6)",
}
"""By dialect: seconds since 1970, and the time of day where the session is."""
ANY_CLOCK = "SELECT NULL, current_timestamp"


class Clock(NamedTuple):
    """The database's clock at one moment."""

    seconds: float  # since 1970
    local: datetime  # in the session's time zone, without the zone


def clock(seconds: Any, local: Any) -> Clock:
    """From the answer to one of the statements above."""
    if isinstance(local, datetime) and local.tzinfo is not None:
        return Clock(local.timestamp(), local.replace(tzinfo=None))
    if seconds is None:
        return Clock(local.replace(tzinfo=UTC).timestamp(), local)
    utc = datetime.fromtimestamp(float(seconds), UTC).replace(tzinfo=None)
    return Clock(float(seconds), local if isinstance(local, datetime) else utc)


def kind_of(name: str, kind: types.TypeEngine[Any], dialect: str) -> Kind:
    """Raises Misconfigured for a column that cannot be polled by."""
    if isinstance(kind, types.DateTime):
        if dialect == "sqlite":
            return "text"  # or whole numbers: SQLite keeps what the application wrote
        return "zoned" if kind.timezone else "zoneless"
    if isinstance(kind, types.Integer) or (
        isinstance(kind, types.Numeric) and kind.scale == 0 and not isinstance(kind, types.Float)
    ):
        return "whole"
    if isinstance(kind, types.String) and not isinstance(kind, types.Enum):
        return "text"
    floats = isinstance(kind, types.Float)
    why = (
        ": a day is too coarse"
        if isinstance(kind, types.Date)
        else ": floats are not exact"
        if floats
        else ""
    )
    raise Misconfigured(
        f"the column {name} has the type {kind.__visit_name__.upper()}, by which no feed can poll{why};"
        " name one with a time, a whole number or a text that sorts, such as ISO 8601"
    )


def is_early(kind: Kind, value: Any, now: Clock) -> bool:
    """Whether the value lies in the future. Without a zone it may be of the session's zone or UTC: the later of both counts."""
    if kind == "whole" or not isinstance(value, str | datetime):
        return False
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return False
    if value.tzinfo is not None:
        return bool(value.timestamp() > now.seconds)
    return bool(value > latest(now))


def latest(now: Clock) -> datetime:
    """The later of the session's time and UTC."""
    return max(now.local, datetime.fromtimestamp(now.seconds, UTC).replace(tzinfo=None))


def is_fine(value: Any) -> bool:
    """Whether no second change of a row takes this value again. Milliseconds are too coarse for that, as texts and as numbers."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return False
    if isinstance(value, datetime):
        return value.microsecond % 1000 != 0
    return not any(unit <= value < 5 * unit for unit in (10**9, 10**12))  # the years 2001 to 2128 since 1970


def checked(name: str, value: Any) -> Hashable:
    """A value of the column. Raises Misconfigured for what SQLite lets into any column, such as floats."""
    if isinstance(value, float | bytes):
        raise Misconfigured(
            f"the column {name} holds a {type(value).__name__}, by which no feed can poll;"
            " write times into it, whole numbers or texts that sort"
        )
    known: Hashable = value
    return known


def cell(value: Any) -> Cell:
    """The value of a watched column as the port says."""
    if (
        value is None
        or isinstance(value, str | UUID)
        or (isinstance(value, int) and value is not True and value is not False)
    ):
        return value
    return str(value)
