"""Turns the configured text of a statement into one `text()` construct, once per loader.

`core.statements` finds `IN :name` or `IN :keys` in the text, and refuses statements that cannot select by key. The driver
gives the text that replaces it, and the binds. SQLAlchemy compiles the construct at its first use and keeps the result; every
load only binds values.
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
    """The construct for `AsyncConnection.execute`, which also takes `driver.parameters(keys)`."""
    condition, binds = driver.condition(types)
    # every colon of the text itself is escaped, so that text() finds only the driver's binds
    parts = (part.replace(r"\:", ":").replace(":", r"\:") for part in pieces(sql, names, driver.dialect))
    return text(condition.join(parts)).bindparams(*binds)
