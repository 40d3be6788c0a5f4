"""All problems of a configuration at once, each with the line that a person must look at.

Reading and checking add `Problem`s to a `Document`. `ConfigErrors` carries them to the caller of `load_config`, and
renders them for a terminal. Passwords in source lines and messages are hidden here, in one place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cacheupdater import masking
from cacheupdater.config.units import printable
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Sequence

Path: TypeAlias = tuple[str | int, ...]
"""The way from the top of the document to a value."""

SHOWN_MAX = 20  # problems printed; beyond that nobody reads on, and the first ones explain the rest
LINE_MAX = 160  # characters of a source line printed
_NAME = re.compile(r"[\w .<-]*")
# A comma may have cut a URL, and made a key of a piece of it
_OF_STRANGE_KEYS = ("unknown key", "has no value", "stands twice", "a key must", "is no name")


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of one line of the file, counted from 0. A `width` of 0 points at no text."""

    line: int
    column: int
    width: int


TOP = Place(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding."""

    file: str
    place: Place | None  # None: there is no file to look into
    path: Path
    message: str
    source: str = ""  # the whole line, as it stands in the file

    def __str__(self) -> str:
        place = self.place
        where = f"{self.file}:{place.line + 1}:{place.column + 1}" if place else self.file
        path, strange = self.path, self.message.startswith(_OF_STRANGE_KEYS)
        if place and path and strange and place.column > self._masked_from():
            path = (*path[:-1], masking.MASK)
        what = f"{dotted(path)}: {self.message}" if path else self.message
        return printable(masking.text(f"{where}: {what}"))

    def excerpt(self) -> str:
        """The source line with a caret under the text in question; empty if there is nothing to show."""
        place = self.place
        if not place or not place.width or place.column >= LINE_MAX:
            return ""
        line, same = masking.line(_flat(self.source))[:LINE_MAX], self._masked_from()
        if place.column > same:  # a caret under the mask would blame what stands before the text in question
            return ""
        width = place.width if place.column < same else len(line)
        caret = " " * place.column + "^" * max(1, min(width, len(line) - place.column))
        number = f"{place.line + 1:>5}"
        return f"{number} | {line}\n{' ' * len(number)} | {caret}"

    def _masked_from(self) -> int:
        """The column from which the line is masked; the line's length if nothing is masked."""
        whole = _flat(self.source)
        shown = masking.line(whole)
        differ = (at for at, (a, b) in enumerate(zip(whole, shown, strict=False)) if a != b)
        return len(whole) if shown == whole else next(differ, min(len(whole), len(shown)))


class ConfigErrors(Misconfigured):
    """Every problem of a configuration, in the order of its lines."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=_order))
        super().__init__(self.render())

    def render(self) -> str:
        """As printed by the command line."""
        lines: list[str] = []
        for problem in self.problems[:SHOWN_MAX]:
            lines.append(str(problem))
            excerpt = problem.excerpt()
            if excerpt:
                lines.append(excerpt)
        more = len(self.problems) - SHOWN_MAX
        if more > 0:
            lines.append(f"and {more} more")
        return "\n".join(lines)


def _order(problem: Problem) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place else (0, 0)


def dotted(path: Path) -> str:
    """`namespaces.product.load`, `listen[1]`. A step that is no name may be a piece of a broken URL, and is masked."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f"{'.' if text else ''}{step if _NAME.fullmatch(step) else masking.MASK}"
    return text


def _flat(text: str) -> str:
    """No tab or control character that would shift or colour a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
