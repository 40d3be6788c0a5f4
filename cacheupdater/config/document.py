"""A file as a plain tree of text, with the place of every key and value, and the problems that were found.

`reader` fills it. `load` and `checks` read the tree and add problems. It lives for one `load_config`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from cacheupdater.config.problems import TOP, ConfigErrors, Path, Place, Problem

# A statement without quotes, which YAML reads up to its first comma or bracket, and the messages about the pieces
_UNQUOTED = re.compile(r"\bsql:\s+(?![\"'|>])\S")
_OF_PIECES = ("not YAML:", "has no value;", "binds no capture,", "must be text")

Tree: TypeAlias = "str | list[Tree] | dict[str, Tree]"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of another file, in which something of the tree is said."""

    file: str
    number: int  # from 1
    text: str

    @property
    def place(self) -> Place:
        """All of the line but its margin."""
        said = self.text.strip()
        return Place(self.number - 1, len(self.text) - len(self.text.lstrip()), len(said))


@dataclass(slots=True)
class Document:
    """One file, read. Only what could be understood is in the tree.

    `elsewhere` has what the tree got from an application's declarations, and not from the file.
    """

    file: str
    lines: list[str]
    tree: dict[str, Tree] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    elsewhere: dict[Path, Line] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    _names: dict[str, list[str]] = field(default_factory=dict)
    _refused: set[Path] = field(default_factory=set)

    def refuse(self, path: Path, message: str, *, key: bool = False) -> None:
        """Notes a problem with a value, or with its key. A missing value is noted at the section that lacks it.

        There is one problem per path: later ones would only follow from the first.
        """
        if path not in self._refused:
            self._refused.add(path)
            line = self.elsewhere.get(self.known(path))
            if line is None:
                self.note(path, self._place(path, key=key), message)
            else:
                self.refuse_line(line, path, message)

    def refuse_line(self, line: Line, path: Path, message: str) -> None:
        """Notes a problem with a line of another file."""
        self.problems.append(Problem(line.file, line.place, path, message, line.text))

    def say_elsewhere(self, path: Path, line: Line) -> None:
        """What the file does not say here is said in this line."""
        if path not in self.values:
            self.elsewhere.setdefault(path, line)

    def note(self, path: Path, place: Place, message: str) -> None:
        """Notes a problem at a place that does not follow from the path."""
        source = self.lines[place.line] if place.line < len(self.lines) else ""
        if message.startswith(_OF_PIECES) and _UNQUOTED.search(source):
            message += '; SQL with ::, commas or brackets needs quotes around it: sql: "SELECT …"'
        self.problems.append(Problem(self.file, place, path, message, source))

    def warn(self, path: Path, message: str) -> None:
        """Notes a setting that is no mistake, and of which the operator should know."""
        line = self.elsewhere.get(self.known(path))
        if line is not None:
            self.warnings.append(Problem(line.file, line.place, path, message, line.text))
            return
        place = self._place(path, key=True)
        source = self.lines[place.line] if place.line < len(self.lines) else ""
        self.warnings.append(Problem(self.file, place, path, message, source))

    def raise_if_refused(self) -> None:
        if self.problems:
            raise ConfigErrors(self.problems)

    def known(self, path: Path) -> Path:
        """The longest part of the path that stands in the file."""
        while path and path not in self.values and path not in self.elsewhere:
            path = path[:-1]
        return path

    def names(self, section: str) -> list[str]:
        """The keys of a section of the document, well formed or not."""
        if section not in self._names:
            said = dict.fromkeys([*self.elsewhere, *self.keys])
            self._names[section] = [str(path[1]) for path in said if len(path) == 2 and path[0] == section]
        return self._names[section]

    def _place(self, path: Path, *, key: bool) -> Place:
        known = self.known(path)
        value = self.values.get(known, TOP)
        if key or known != path or not value.width:
            return self.keys.get(known, value)
        return value
