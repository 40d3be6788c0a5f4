"""Puts what an application declares under the configuration file: `--app shop.caching:cache`.

`load` calls `put_under` between reading the file and typing its parts. Each declared value becomes the tree of a namespace, as
if the file said so. What the file says wins, except what readers rely on too: the pattern and the form of the bytes. So the
usual checks hold for declarations, and a mistake is shown at its line in Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from linecache import getline
from typing import TYPE_CHECKING

from cacheupdater.config.checks import STATEMENT_MAX_S
from cacheupdater.config.document import Line
from cacheupdater.config.merge import merged
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cacheupdater.config.document import Document, Tree
    from cacheupdater.config.problems import Path
    from cacheupdater_client.protocol.definitions import Definition, Definitions, Place

_IN_TIME = re.compile(r".*(ms|[0-9.]s)/s")
_LOADS = ("sql", "table", "python")
_METHOD = (
    "the loader is a method, and the updater has no object to call it on; declare a function,"
    " or say in a file how to load: `load: {source: …, sql: …}`"
)
_STUB = (
    'the cache has fill="updater", so the application has no loader;'
    " say in a file how to load: `load: {source: …, sql: …}`"
)


@dataclass(frozen=True, slots=True)
class Application:
    """What one application declares."""

    name: str  # as the command line has it
    said: Definitions
    redis: Callable[[], str]  # the URL of its Redis, with the password. Misconfigured if no URL says it
    listen: str | None  # where its clients send their hints, if a setting says so


def put_under(document: Document, app: Application) -> Mapping[str, Definition]:
    """Completes the document's tree. Returns the declared values that the application's loaders load, by namespace."""
    here = _line(app.said.place)
    tree = document.tree
    document.say_elsewhere((), here)
    tree.setdefault("version", "1")
    if "cache" not in tree:
        document.say_elsewhere(("cache", "url"), here)
        try:
            tree["cache"] = {"url": app.redis()}
        except Misconfigured as e:
            document.refuse(("cache", "url"), str(e))
    if "listen" not in tree and "queue" not in tree and app.listen is not None:
        tree["listen"] = [app.listen]
    sources = _section(document, "sources")
    for name, budget in app.said.sources.items():
        sources[name] = _source(document, name, budget, here)
    return _values(document, app, list(sources))


def _values(document: Document, app: Application, sources: list[str]) -> Mapping[str, Definition]:
    namespaces = _section(document, "namespaces")
    found: dict[str, Definition] = {}
    taken: set[str] = set()
    for each in app.said.values:
        name, line = namespace_of(each), _line(each.place)
        path = ("namespaces", name)
        if name in taken:
            document.refuse_line(line, path, "another declared value has this name; rename the function")
            continue
        taken.add(name)
        _mark(document, path, line)
        own = _dict(namespaces, name)
        _refuse_shared(document, path, own, each)
        theirs = _namespace(document, path, each, sources=sources)
        load, ours = _dict(own, "load"), _dict(theirs, "load")
        if any(way in load for way in _LOADS):
            del ours["python"]
        else:
            found[name] = each
            if each.needs_load:
                document.refuse((*path, "load"), _STUB)
            elif each.needs_object:
                document.refuse((*path, "load"), _METHOD)
        namespaces[name] = {**merged(own, theirs), "load": {**ours, **load}}
    return found


def namespace_of(value: Definition) -> str:
    """The name of its namespace: the loader's, without the functions around it."""
    return value.name.rpartition("<locals>.")[2].replace(".", "-")


def _namespace(document: Document, path: Path, value: Definition, *, sources: list[str]) -> dict[str, Tree]:
    spelling = value.spelling
    load: dict[str, Tree] = {"python": f"{value.loader.__module__}:{value.name.rpartition('.')[2]}"}
    source = value.source or (sources[0] if len(sources) == 1 else None)
    if source is not None:
        load["source"] = source
    elif "load" not in _dict(_dict(document.tree, "namespaces"), str(path[-1])):
        document.refuse((*path, "load", "source"), _no_source(sources))
    safe: dict[str, Tree] = {} if value.fail_safe_ms is None else {"fail_safe": f"{value.fail_safe_ms}ms"}
    return {
        "key": value.pattern.text,
        "load": load,
        "ttl": {"base": f"{value.ttl_ms}ms"},
        **safe,
        "missing": {"ttl": f"{value.missing_ms}ms"},
        "value": {
            "encoding": spelling.encoding or "raw",
            "numbers": spelling.numbers,
            "times": spelling.times,
        },
    }


def _no_source(sources: list[str]) -> str:
    if sources:
        return f"is not said, and there are several: write source= in the declaration, one of {', '.join(sources)}"
    return (
        'there is no budget for these loads: write Cache(…, sources={"shop": "500/s"}), or sources in a file'
    )


def _refuse_shared(document: Document, path: Path, own: dict[str, Tree], value: Definition) -> None:
    """Refuses, and removes, settings of the file that readers would not know of."""
    for home, names in (
        (own, ("key", "framework")),
        (_dict(own, "value"), ("encoding", "numbers", "times", "columns")),
    ):
        where = path if home is own else (*path, "value")
        for name in names:
            if name in home:
                document.refuse(
                    (*where, name), f"is declared at {value.place}, for readers too; change it there"
                )
                del home[name]


def _source(document: Document, name: str, budget: object, line: Line) -> Tree:
    own = _dict(_dict(document.tree, "sources"), name)
    path = ("sources", name)
    document.say_elsewhere(path, line)
    if "budget" in own or "db_time" in own:
        return own
    setting = "db_time" if isinstance(budget, str) and _IN_TIME.fullmatch(budget) else "budget"
    document.say_elsewhere((*path, setting), line)
    # the longest that an updater may wait: a value's own `timeout` bounds it further
    timeout: dict[str, Tree] = {"statement_timeout": f"{STATEMENT_MAX_S * 1000:.0f}ms"}
    return {**timeout, setting: budget if isinstance(budget, str) else str(budget), **own}


def _mark(document: Document, path: Path, line: Line) -> None:
    """Remembers that what the file does not say here is said in this line."""
    for tail in (
        (),
        ("key",),
        ("load",),
        ("load", "source"),
        ("load", "python"),
        ("ttl",),
        ("fail_safe",),
        ("value",),
    ):
        document.say_elsewhere((*path, *tail), line)


def _section(document: Document, name: str) -> dict[str, Tree]:
    """A section of the tree, made where the file has none. Of a malformed one a copy, for the models refuse it."""
    made: dict[str, Tree] = {}
    found = document.tree.setdefault(name, made)
    return found if isinstance(found, dict) else made


def _dict(home: dict[str, Tree], name: str) -> dict[str, Tree]:
    found = home.get(name)
    return found if isinstance(found, dict) else {}


def _line(place: Place) -> Line:
    return Line(place.file, max(1, place.line), getline(place.file, place.line).rstrip("\n"))
