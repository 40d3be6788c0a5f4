"""The configured text of a statement becomes one `text()` construct, once per loader.

`core.statements` finds where the text says `IN :name` or `IN :keys`, and refuses what cannot select by key; the driver
says what stands there instead and how it is bound. SQLAlchemy compiles the construct at its first use and keeps that;
every load only binds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from cacheupdater.core.statements import pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from cacheupdater.adapters.loader_sql.drivers import Driver
    from cacheupdater_client.protocol.patterns import CaptureType


def statement(sql: str, names: tuple[str, ...], types: Sequence[CaptureType], driver: Driver) -> TextClause:
    """What `AsyncConnection.execute` takes, with `driver.parameters(keys)` beside it."""
    condition, binds = driver.condition(types)
    # every colon of the text itself is escaped, so that text() finds the driver's binds and nothing else
    parts = (part.replace(r"\:", ":").replace(":", r"\:") for part in pieces(sql, names, driver.dialect))
    return text(condition.join(parts)).bindparams(*binds)
