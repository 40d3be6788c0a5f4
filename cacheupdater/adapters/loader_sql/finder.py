"""The keys that a changed row of another table concerns, by a statement of the configuration.

The service makes one `SqlFinder` for each change with `sql`. It lives as long as its configuration. Nothing is paid here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.errors import Faulty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from cacheupdater.adapters.loader_sql.loader import SqlSource
    from cacheupdater.feed_ports import Cell
    from cacheupdater_client.protocol.patterns import Capture


class SqlFinder:
    """`feed_ports.Finder`."""

    def __init__(self, source: SqlSource, sql: str, column: str, captures: Sequence[str]) -> None:
        """`sql` selects the captures, and says `IN :column`."""
        self._source = source
        self._sql = sql
        self._column = column
        self._captures = captures
        self._statements: dict[type[Capture], TextClause] = {}

    async def find(self, values: Sequence[Capture]) -> Sequence[Sequence[Cell]]:
        """The captures of the keys that rows with these values of the column concern. Raises Unavailable or Faulty."""
        kind = type(values[0])
        statement = self._statements.get(kind)
        if statement is None:
            statement = self._source.statement(self._sql, (self._column,), (kind,))
            self._statements[kind] = statement
        names, rows = await self._source.fetch(statement, self._source.bound([(value,) for value in values]))
        try:
            at = [list(names).index(capture) for capture in self._captures]
        except ValueError:
            raise Faulty(
                f"the statement of a change must select the captures {', '.join(self._captures)}, and selects {', '.join(names)}"
            ) from None
        return [[row[place] for place in at] for row in rows]
