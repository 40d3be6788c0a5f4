"""What can be known about a namespace's SQL without a database: which captures it binds, and how.

`checks` asks; the loader adapter turns the same statement into `= ANY` or an expanding `IN`.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BIND = re.compile(r"(?<![:\w\\]):([A-Za-z_]\w*)")  # as in SQLAlchemy, `x::text` and `\:word` are none
_IN_BEFORE = re.compile(r"\b(?P<not>NOT\s+)?IN\s*\(?\s*\Z", re.IGNORECASE)


def statement_problem(sql: str, captures: Sequence[str]) -> str:
    """What is wrong with the statement, or an empty text."""
    wanted = f"IN :{captures[0]}" if len(captures) == 1 else f"({', '.join(captures)}) IN :keys"
    binds = list(_BIND.finditer(sql))
    if not binds:
        return f"binds no capture, so it would load the same rows for every batch; add WHERE … {wanted}"
    for bind in binds:
        problem = _bind_problem(sql, bind, captures)
        if problem:
            return f"{problem}; write {wanted}"
    return ""


def _bind_problem(sql: str, bind: re.Match[str], captures: Sequence[str]) -> str:
    name, before = bind[1], sql[: bind.start()]
    if name != "keys" and name not in captures:
        close = get_close_matches(name, [*captures, "keys"], n=1)
        return f":{name} names no capture of the key" + (f" (did you mean :{close[0]}?)" if close else "")
    found = _IN_BEFORE.search(before)
    if found is None:
        return f":{name} is a list of values and needs IN before it"
    if found["not"]:
        return f"NOT IN :{name} would load the rows of every other key"
    if len(captures) > 1 and name != "keys":
        return f"IN :{name} binds one of {len(captures)} captures and would load rows of other keys"
    return ""
