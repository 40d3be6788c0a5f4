"""The configured text of a statement becomes one `text()` construct, once per loader.

The text says `IN :name` or `IN :keys` where the keys go; the driver says what stands there instead and how it is bound.
SQLAlchemy compiles the construct at its first use and keeps that; every load only binds. What cannot be right is refused
here, at start: a statement that does not select by key, another bind, and a LIMIT.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlalchemy import text

from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from cacheupdater.adapters.loader_sql.drivers import Driver
    from cacheupdater.core.keyspace import CaptureType

_IN = re.compile(r"\b(NOT\s+)?IN\s*(?:\(\s*:(\w+)\s*\)|:(\w+)\b)", re.IGNORECASE)
_BIND = re.compile(r"(?<![:\w\\]):([A-Za-z_]\w*)")  # as in SQLAlchemy, `x::text` and `\:word` are none
_LIMIT = re.compile(  # quoted text and comments are passed over, parentheses counted
    r"'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|[()]"
    r"|\b(LIMIT|OFFSET|FETCH|TOP)\b(?=\s*[\d(]|\s+(?:FIRST|NEXT)\b)",
    re.IGNORECASE | re.DOTALL,
)


def statement(sql: str, names: tuple[str, ...], types: Sequence[CaptureType], driver: Driver) -> TextClause:
    """What `AsyncConnection.execute` takes, with `driver.parameters(keys)` beside it."""
    parts = _cut(sql, names)
    _refuse_limit(sql)
    condition, binds = driver.condition(types)
    # every colon of the text itself is escaped, so that text() finds the driver's binds and nothing else
    spelled = condition.join(part.replace(r"\:", ":").replace(":", r"\:") for part in parts)
    return text(spelled).bindparams(*binds)


def _cut(sql: str, names: tuple[str, ...]) -> Sequence[str]:
    """The statement in the pieces around `IN :keys`; refuses every other bind, and a statement without any."""
    usable = {"keys", *names} if len(names) == 1 else {"keys"}
    advice = f"IN :{names[0]}" if len(names) == 1 else f"({', '.join(names)}) IN :keys"
    parts, at = [], 0
    for match in _IN.finditer(sql):
        if (match[2] or match[3]) not in usable or match[1]:
            continue
        parts.append(sql[at : match.start()])
        at = match.end()
    parts.append(sql[at:])
    stray = next((bind[1] for part in parts if (bind := _BIND.search(part))), None)
    if stray is not None:
        raise Misconfigured(
            f"the statement cannot bind :{stray}; it selects many rows at once, by `{advice}` (\\: is a colon)"
        )
    if len(parts) == 1:
        raise Misconfigured(f"the statement must select the rows of many keys at once, by `{advice}`")
    return parts


def _refuse_limit(sql: str) -> None:
    """A limit of the whole result hides rows that exist, and absence deletes. Inside parentheses it may be per key."""
    depth = 0
    for token in _LIMIT.finditer(sql):
        depth += (token[0] == "(") - (token[0] == ")")
        if token[1] and depth == 0:
            raise Misconfigured(
                f"the statement has {token[1].upper()}: it loads many keys at once, and a row left out would count as deleted;"
                " limit the rows of each key inside a (LATERAL) subquery"
            )
