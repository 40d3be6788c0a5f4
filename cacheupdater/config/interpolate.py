"""Values from the environment: `${VAR}`, `${VAR:-default}`, `${VAR:?message}`, and `$$` for a plain `$`.

`reader` calls it once per scalar value, before the values get types. Keys are never changed. A value that was put in is not
searched for variables again. As in a shell, the two forms with a colon treat an empty variable like one that is not set.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DOLLAR = re.compile(r"\$\$|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_FORM = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<kind>:[-?])(?P<rest>.*))?", re.DOTALL)


def interpolate(text: str, environ: Mapping[str, str]) -> str:
    """The text with every variable put in. ValueError says which one is missing or malformed."""
    return _DOLLAR.sub(lambda match: _value(match, environ), text)


def _value(match: re.Match[str], environ: Mapping[str, str]) -> str:
    if match[0] == "$$":
        return "$"
    form = _FORM.fullmatch(match["inside"])
    if not match["end"] or form is None or "${" in match["inside"]:
        raise ValueError(
            f"cannot read {_begun(match['inside'])!r}; write ${{NAME}}, ${{NAME:-default}} or ${{NAME:?message}}, and $$ for a plain $"
        )
    name, kind = form["name"], form["kind"]
    found = environ.get(name)
    if found is None or (found == "" and kind is not None):
        return _absent(form, state="not set" if found is None else "empty")
    if not found.isprintable():
        raise ValueError(f"the value of ${{{name}}} holds a newline or another control character")
    return found


def _begun(inside: str) -> str:
    """Only the name: the rest may be a default, and so a password."""
    name = re.match(r"\w*", inside)
    return "${" + (name[0] if name else "") + "…"


def _absent(form: re.Match[str], *, state: str) -> str:
    name, kind, rest = form["name"], form["kind"], form["rest"]
    if kind == ":-":
        return str(rest)
    if kind == ":?" and rest:
        raise ValueError(f"{rest} (${{{name}}} is {state})")
    raise ValueError(f"${{{name}}} is {state}; set it, or write ${{{name}:-default}}")
