"""The second pass: mistakes that no single value shows, such as a ttl that is shorter than the interval of refreshes.

`load` runs it on the parts that are well formed, so that one run names every problem with its line. Nothing is
contacted and no loader is imported.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from cacheupdater.config import frameworks
from cacheupdater.config.addresses import HttpAddress, MemoryAddress, TcpAddress
from cacheupdater.config.secrets import read_token
from cacheupdater.config.units import shown
from cacheupdater.core import database_url
from cacheupdater.core.limits import Limits
from cacheupdater.core.statements import Dialect, pieces
from cacheupdater.errors import Misconfigured
from cacheupdater_client.protocol.patterns import overlaps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.config.document import Document
    from cacheupdater.config.models import (
        AdminSection,
        LoadSection,
        NamespaceSection,
        QueueSection,
        RefreshSection,
        SourceSection,
        TopSection,
        ValueSection,
    )
    from cacheupdater.config.problems import Path
    from cacheupdater_client.protocol.patterns import Pattern

HEAD_TIMEOUT_S = Limits().head_timeout
# two calls to Redis of 0.5 s, and 0.2 s for the database to say that it gave up
STATEMENT_MAX_S = HEAD_TIMEOUT_S - 1.2
_MYSQL = database_url.UNENCRYPTED["mysql"]
_OPENLY = (
    f"leads off this machine, and {_MYSQL}; write `tls: off` beside url to say that you know,"
    " and let the connection go through a tunnel or a network of its own"
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")  # a metric's label: short and from a closed set


def check_names(document: Document, section: str, names: Sequence[str]) -> None:
    for name in names:
        problem = _name_problem(name)
        if problem:
            document.refuse((section, name), problem, key=True)


def names_of(document: Document, section: str) -> Sequence[str]:
    """The good names of a section, whatever stands behind them. Any other may be a piece of a broken URL."""
    return [name for name in document.names(section) if not _name_problem(name)]


def _name_problem(name: str) -> str:
    if _NAME.fullmatch(name):
        return ""
    return f"{shown(name)} is no name; use at most 63 letters, digits, - and _, beginning with a letter"


def token_of(document: Document, admin: AdminSection) -> str | None:
    """The token that the admin address requires before it answers about keys; None if it requires none."""
    if admin.token_file is None:
        return None
    try:
        return read_token(admin.token_file)
    except ValueError as e:
        document.refuse(("admin", "token_file"), str(e))
        return None


def check_top(document: Document, top: TopSection, *, collects: bool) -> None:
    shared = top.queue.url != "memory://"
    _check_listen(document, top, collects=collects or shared)
    if not collects:
        check_queue(document, top.queue)
    if top.state and "://" in top.state:
        document.refuse(("state",), "is an address; it must be the path of a file")
    problem = _name_problem(top.fleet) if top.fleet else ""
    if problem:
        document.refuse(("fleet",), problem)


def check_queue(document: Document, queue: QueueSection) -> None:
    if queue.url != "memory://" and queue.partitions is not None:
        document.refuse(
            ("queue", "partitions"),
            "is for queue memory://; a topic has partitions of its own, and other queues have them in their url; remove it",
        )


def _check_listen(document: Document, top: TopSection, *, collects: bool) -> None:
    """No address may stand twice, except those of port 0, which means any free port. `collects`: hints are forwarded."""
    if top.listen is not None and not top.listen:
        document.refuse(
            ("listen",), "names no address, so no hint could arrive; remove it for the conventional socket"
        )
    taken: dict[object, int] = {}
    for at, address in enumerate(top.listen or ()):
        if collects and isinstance(address, MemoryAddress):
            document.refuse(
                ("listen", at),
                "is a mailbox of a memory queue; hints for other queues need unix:// or tcp://",
            )
        if not collects and isinstance(address, HttpAddress):
            document.refuse(
                ("listen", at), "needs a collector: a queue that is not memory://, or `cacheupdater collect`"
            )
        if isinstance(address, TcpAddress) and not address.port:
            continue
        if address in taken:
            document.refuse(("listen", at), f"is the same address as listen[{taken[address]}]")
        taken.setdefault(address, at)
    if top.admin and top.admin.listen in taken:
        document.refuse(("admin", "listen"), f"is the same address as listen[{taken[top.admin.listen]}]")


def check_source(document: Document, name: str, source: SourceSection) -> None:
    if (source.budget is None) == (source.db_time is None):
        said = "has no budget" if source.budget is None else "has budget and db_time"
        document.refuse(
            ("sources", name),
            f"{said}; say what this database can afford, either in rows, as budget: 500/s, "
            "or in its time, as db_time: 300ms/s",
        )
    if source.statement_timeout > STATEMENT_MAX_S:
        document.refuse(
            ("sources", name, "statement_timeout"),
            f"must be at most {STATEMENT_MAX_S:g}s: a refresh is given up after {HEAD_TIMEOUT_S:g}s, its calls to Redis included",
        )


def check_encryption(document: Document, name: str, source: SourceSection) -> None:
    """Refuses settings of encryption that do not fit the source's URL, or do not fit together."""
    said = [each for each in ("tls", "ca", "cert", "key") if getattr(source, each) is not None]
    if source.url is None:
        where, local = "a source without url connects to nothing", True
    else:
        of = database_url.parts(source.url.reveal())
        where, local = database_url.UNENCRYPTED.get(of.database, ""), of.local
    files = [each for each in said if each != "tls"]
    wrong: tuple[str, str] | None = None
    if where and said and (files or source.tls != "off"):
        wrong = said[0] if said[0] != "tls" or source.tls != "off" else files[0], f"{where}; remove it"
    elif where == _MYSQL and source.tls is None and not local:
        document.refuse(("sources", name, "url"), _OPENLY)
    elif source.tls == "off" and files:
        wrong = files[0], "is for an encrypted connection, and tls says off; remove one of them"
    elif source.tls == "on" and source.ca:
        wrong = (
            "tls",
            "does not look at certificates when it is on; with ca write tls: verify, or leave tls out",
        )
    elif source.key and not source.cert:
        wrong = "key", "is the key of a certificate; name that too, as cert: FILE"
    if wrong:
        document.refuse(("sources", name, wrong[0]), wrong[1])


def check_load(document: Document, name: str, load: LoadSection, sources: Sequence[str]) -> None:
    """There must be exactly one way to load, from a declared source. `sources` are the declared names."""
    path: Path = ("namespaces", name, "load")
    said = [
        way for way, value in (("sql", load.sql), ("table", load.table), ("python", load.python)) if value
    ]
    if len(said) != 1:
        has = f"has {' and '.join(said)}" if said else "says no way to load"
        document.refuse(path, f"{has}; name exactly one of sql, table and python")
    elif "rows" in load.model_fields_set and not load.sql:
        document.refuse(
            (*path, "rows"),
            "is for sql; a table's rows have one key each, a Python loader groups as it likes",
        )
    _check_stamp(document, path, load)
    if load.source not in sources:
        close = get_close_matches(load.source, sources, n=1)
        known = f'did you mean "{close[0]}"?' if close else f"declared: {', '.join(sources) or 'none'}"
        document.refuse((*path, "source"), f"no source is called {shown(load.source)}; {known}")


def _check_stamp(document: Document, path: Path, load: LoadSection) -> None:
    """One column may say when a row has changed, and only if a key has one row."""
    said = [
        name
        for name, column in (("version_column", load.version_column), ("updated_at", load.updated_at))
        if column
    ]
    if len(said) > 1:
        document.refuse(path, "has version_column and updated_at; one of them tells enough")
    elif said and load.python:
        document.refuse(
            (*path, said[0]), "is for rows of sql and table; a Python loader returns the value itself"
        )
    elif said and load.rows == "many":
        document.refuse(
            (*path, said[0]), "is for one row per key; with rows: many each row would say its own"
        )


def check_source_url(document: Document, name: str, load: LoadSection, source: SourceSection) -> None:
    if source.url is None and (load.sql or load.table):
        document.refuse(
            ("namespaces", name, "load", "source"),
            f"source {shown(load.source)} has no url, which {'sql' if load.sql else 'table'} needs",
        )


def check_statement(document: Document, section: NamespaceSection, dialect: Dialect) -> None:
    """The namespace's SQL must select by the captures of its keys."""
    try:
        if section.load.sql:
            pieces(section.load.sql, section.pattern.names, dialect)
    except Misconfigured as e:
        document.refuse(("namespaces", section.name, "load", "sql"), str(e))


def check_overlap(document: Document, patterns: Mapping[str, Pattern]) -> None:
    """Two namespaces may not claim the same keys. Only patterns of one shape can."""
    shapes: dict[object, list[str]] = {}
    for name, pattern in patterns.items():
        same_shape = shapes.setdefault(pattern.literals, [])
        rival = next((other for other in same_shape if overlaps(pattern, patterns[other])), None)
        if rival:
            message = f"takes the same keys as {shown(patterns[rival].text)} of namespace {shown(rival)}"
            document.refuse(("namespaces", name, "key"), f"{shown(pattern.text)} {message}")
        else:
            same_shape.append(name)


def check_refresh(document: Document, home: Path, own: RefreshSection, policy: object) -> None:
    """Refuses settings of a section's `refresh` that mean nothing under the policy in force there."""
    path: Path = (*home, "refresh")
    said = own.model_fields_set
    if own.policy == "price" and {"policy", "every"} <= said:
        document.refuse(
            (*path, "every"),
            "price has no every: it finds out when each key is worth its row; remove every, or policy: price",
        )
    for name in ("worth", "max_age"):
        if policy == "fixed" and name in said:
            document.refuse(
                (*path, name),
                "is for policy: price, and here the interval is fixed; write policy: price and no every",
            )


def check_value(document: Document, home: Path, own: ValueSection) -> None:
    """`foreign` has an older name, which may not stand beside it."""
    if {"foreign", "wrong_type"} <= own.model_fields_set:
        path: Path = (*home, "value", "wrong_type")
        document.refuse(path, "is an older name for foreign, which stands beside it; remove wrong_type")


def check_merged(document: Document, one: NamespaceSection) -> None:
    """Checks settings together, whether they come from the namespace or from `defaults`.

    A problem is noted at the setting, or at the namespace if the setting is not its own.
    """
    _check_ttl(document, one)
    many = one.load.rows == "many"
    if many and one.encoding not in {"json", "msgpack", "pickle", *frameworks.FORMS.values()}:
        document.refuse(
            _said_by(one),
            f"{one.encoding} cannot hold the list that rows: many makes; use json or msgpack",
        )
    _check_framework(document, one)
    _check_columns(document, one)
    _check_spelling(document, one)


def _check_ttl(document: Document, one: NamespaceSection) -> None:
    """A value must live until its refresh."""
    path: Path = ("namespaces", one.name)
    name, age = (
        ("every", one.refresh.every) if one.refresh.policy == "fixed" else ("max_age", one.refresh.max_age)
    )
    if age is not None and one.ttl.base * (1 - one.ttl.jitter) <= age:
        document.refuse(
            (*path, "ttl") if (*path, "ttl") in document.values else (*path, "refresh", name),
            f"a ttl of {one.ttl.base:g}s less {one.ttl.jitter:.0%} jitter is not longer than refresh.{name} {age:g}s: "
            f"values would expire before they are refreshed",
        )


def _check_spelling(document: Document, one: NamespaceSection) -> None:
    """Refuses spellings that mean nothing to the encoding. Those in `defaults` stay, for they are for other namespaces."""
    value: Path = ("namespaces", one.name, "value")
    for name in _of_framework(one):
        if (*value, name) in document.values:
            document.refuse((*value, name), "is the framework's to say; remove it, or framework")
    for name in ("numbers", "times"):
        if (*value, name) in document.values and one.value.encoding == "raw":
            document.refuse(
                (*value, name), f"is for encodings that spell {name}; raw takes bytes as they are"
            )


def _of_framework(one: NamespaceSection) -> Sequence[str]:
    """The settings of `value` that a framework leaves no choice about: JSON and msgpack have neither decimals nor times."""
    if one.framework is None:
        return ()
    return (
        ("encoding",)
        if one.encoding in {"json", "msgpack", "dogpile-json"}
        else ("encoding", "numbers", "times")
    )


def _said_by(one: NamespaceSection) -> Path:
    """The setting that says how values are spelled."""
    return (
        "namespaces",
        one.name,
        *(("framework", "serializer") if one.framework else ("value", "encoding")),
    )


def _check_framework(document: Document, one: NamespaceSection) -> None:
    framework = one.framework
    if framework is not None:
        said = frozenset(framework.model_fields_set)
        for name, why in frameworks.mistakes(framework.kind, said, framework.serializer).items():
            document.refuse(("namespaces", one.name, "framework", name), why)


def _check_columns(document: Document, one: NamespaceSection) -> None:
    value: Path = ("namespaces", one.name, "value")
    if one.load.python:
        if (*value, "columns") in document.values:
            document.refuse(
                (*value, "columns"), "is for rows of sql and table; a Python loader returns the value itself"
            )
        return
    columns = one.value.columns or ()
    if len(set(columns)) < len(columns):
        document.refuse((*value, "columns"), "names a column twice")
    if one.encoding in {"string", "raw"} and len(columns) != 1:
        message = f"{one.encoding} holds a single column of a row; name it, as in columns: [name]"
        document.refuse((*value, "columns"), message)
