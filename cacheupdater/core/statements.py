"""How a configured statement is read: which parts of its text are code, and where the keys go.

`config` asks for a problem, to report it at its line. The SQL loader asks for the pieces, to put its own condition between
them. Both get the same answer, so the loader can run what `config` accepts. Strings, quoted names and comments are passed
over by the rules of the database that will read them. Nothing here knows a driver. A database with quotes of its own gets an
entry in `_QUOTED`.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, TypeAlias

from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Sequence

Dialect: TypeAlias = Literal["postgresql", "sqlite", "mysql"]
"""Whose rules for quotes and comments hold."""

_DIALECTS: dict[str, Dialect] = {"postgresql": "postgresql", "postgres": "postgresql", "sqlite": "sqlite"}

# Closed forms come first, so an opening sign that is left is one that nobody closes. Loops are unrolled: linear in time.
_PLAIN = r"'[^']*(?:''[^']*)*'"
_NAME = r'"[^"]*(?:""[^"]*)*"'
_TICKS = r"`[^`]*(?:``[^`]*)*`"
_ESCAPED = r"'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'"
_ESCAPED_NAME = r'"[^"\\]*(?:(?:\\.|"")[^"\\]*)*"'
_DOLLARS = r"(?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$"
_QUOTED: dict[Dialect, re.Pattern[str]] = {
    "postgresql": re.compile(
        rf"(?P<comment>--[^\n]*)|(?P<nested>/\*)|(?P<text>(?<![\w$])[eE]{_ESCAPED}|{_PLAIN}|{_NAME}|{_DOLLARS})"
        r"|(?P<open>['\"]|(?<![\w$])\$(?:[^\W\d]\w*)?\$)",
        re.DOTALL,
    ),
    "sqlite": re.compile(
        rf"(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))|(?P<text>{_PLAIN}|{_NAME}|{_TICKS}|\[[^\]]*\])|(?P<open>['\"`\[])",
        re.DOTALL,
    ),
    # a comment that begins with ! is code
    "mysql": re.compile(
        r"(?P<comment>--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*(?!M?!).*?\*/)"
        rf"|(?P<text>{_ESCAPED}|{_ESCAPED_NAME}|{_TICKS})|(?P<open>['\"`]|/\*(?!M?!))",
        re.DOTALL,
    ),
}
_NESTING = re.compile(r"/\*|\*/")

_BIND = re.compile(r"(?<![:\w\\]):([A-Za-z_]\w*)")  # as in SQLAlchemy, `x::text` and `\:word` are none
_IN = re.compile(r"\b(?P<not>NOT\s+)?IN\s*(?:\(\s*:(?P<inside>\w+)\s*\)|:(?P<bare>\w+)\b)", re.IGNORECASE)
_LIMIT = re.compile(r"[()]|\b(LIMIT|OFFSET|FETCH|TOP)\b(?=\s*[\d(]|\s+(?:FIRST|NEXT)\b)", re.IGNORECASE)


def dialect_of(backend: str) -> Dialect:
    """By the first word of a source's URL."""
    return _DIALECTS.get(backend, "mysql")


def pieces(sql: str, captures: Sequence[str], dialect: Dialect) -> Sequence[str]:
    """The text before, between and after each `IN :id` or `IN :keys`; Misconfigured says why it cannot load by key."""
    code = _code(sql, dialect)
    wanted = f"IN :{captures[0]}" if len(captures) == 1 else f"({', '.join(captures)}) IN :keys"
    selecting = {
        match.end("inside") if match["inside"] else match.end(): match for match in _IN.finditer(code)
    }
    cut, at = [], 0
    for bind in _BIND.finditer(code):
        match = selecting.get(bind.end())
        problem = _problem(bind[1], match, captures)
        if problem or match is None:
            raise Misconfigured(f"{problem}; write {wanted}")
        cut.append(sql[at : match.start()])
        at = match.end()
    if not cut:
        raise Misconfigured(
            f"binds no capture, so it would load the same rows for every batch; add WHERE … {wanted}"
        )
    if word := _limit(code):
        raise Misconfigured(
            f"has {word}: it loads many keys at once, and a row left out would count as deleted;"
            " limit the rows of each key inside a (LATERAL) subquery"
        )
    return [*cut, sql[at:]]


def selecting(sql: str, dialect: Dialect) -> str:
    """The one name behind `IN :` in the text, of a statement that finds keys by a column; Misconfigured if there is not one."""
    code = _code(sql, dialect)
    names = dict.fromkeys(bind[1] for bind in _BIND.finditer(code))
    if len(names) != 1:
        said = "binds " + (", ".join(f":{name}" for name in names) if names else "no column")
        raise Misconfigured(f"{said}; write IN :column, with one column of the table whose rows have changed")
    if word := _limit(code):
        raise Misconfigured(f"has {word}: a key that is left out would keep its old value; remove it")
    [name] = names
    pieces(sql, (name,), dialect)
    return name


def _problem(name: str, match: re.Match[str] | None, captures: Sequence[str]) -> str:
    """What is wrong with one bind, or an empty text."""
    if name != "keys" and name not in captures:
        close = get_close_matches(name, [*captures, "keys"], n=1)
        return f":{name} names no capture of the key (" + (
            f"did you mean :{close[0]}?)" if close else "\\: is a colon)"
        )
    if match is None:
        return f":{name} is a list of values and needs IN before it"
    if match["not"]:
        return f"NOT IN :{name} would load the rows of every other key"
    if len(captures) > 1 and name != "keys":
        return f"IN :{name} binds one of {len(captures)} captures and would load rows of other keys"
    return ""


def _limit(code: str) -> str:
    """The word that limits the whole result, and so hides rows that exist; or nothing. In parentheses it may be per key."""
    depth = 0
    for token in _LIMIT.finditer(code):
        depth += (token[0] == "(") - (token[0] == ")")
        if token[1] and depth == 0:
            return token[1].upper()
    return ""


def _code(sql: str, dialect: Dialect) -> str:
    """The text, as long as it was, with blanks in place of comments and quotes in place of all that is quoted."""
    quoted, parts, at = _QUOTED[dialect], [], 0
    while match := quoted.search(sql, at):
        if match["open"]:
            raise Misconfigured(f"has {_opening(sql, match.start())} that is opened and not closed")
        nested = match.lastgroup == "nested"
        end = _end_of_nested(sql, match.end()) if nested else match.end()
        filler = "'" if match["text"] else " "
        parts += [sql[at : match.start()], filler * (end - match.start())]
        at = end
    return "".join(parts) + sql[at:]


def _end_of_nested(sql: str, at: int) -> int:
    """The place behind a comment that may hold others; `at` lies inside it."""
    begin, depth = at - 2, 1
    for sign in _NESTING.finditer(sql, at):
        depth += 1 if sign[0] == "/*" else -1
        if not depth:
            return sign.end()
    raise Misconfigured(f"has {_opening(sql, begin)} that is opened and not closed")


def _opening(sql: str, at: int) -> str:
    """What opens at this place, with its first characters."""
    kind = "a comment" if sql.startswith("/*", at) else "a quote"
    return f"{kind} `{' '.join(sql[at : at + 20].split())}`"
