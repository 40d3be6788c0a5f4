"""`cacheupdater changes`: what is run, what is only shown, and what is left to a person, on a feed in memory."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from cacheupdater.cli import exits
from cacheupdater.cli.command_line import main
from cacheupdater.errors import Unavailable
from cacheupdater.feed_ports import Lack
from cacheupdater.service import installing

FILE = {
    "version": 1,
    "queue": {"url": "memory://"},
    "cache": {"url": "redis://127.0.0.1:1/0"},
    "sources": {
        "shop": {"url": "postgresql+asyncpg://127.0.0.1:1/shop", "budget": "1/s", "changes": "replication"}
    },
    "namespaces": {
        "product": {
            "key": "product:{id:int}",
            "load": {"source": "shop", "table": "products"},
            "changes": [{"table": "products"}],
        }
    },
}


class Database:
    """A feed's database that holds one thing, or does not. The second source's is away."""

    def __init__(self):
        self.holds = False
        self.lacking = []  # what is left to a person

    async def lacks(self):
        return self.lacking

    async def install(self):
        missing, self.holds = not self.holds, True
        return ["CREATE it"] if missing else []

    async def remove(self):
        statements, self.holds = await self.removal(), False
        return statements

    async def script(self):
        return ["CREATE it"]

    async def removal(self):
        return ["DROP it"] if self.holds else []


@pytest.fixture
def database(monkeypatch):
    database = Database()

    @asynccontextmanager
    async def opened(_config, source):
        if str(source.url).endswith("/away"):
            raise Unavailable("the database is away")
        yield database

    monkeypatch.setattr(installing, "opened", opened)
    return database


@pytest.fixture
def run(tmp_path, capsys):
    """What the command says."""
    file = tmp_path / "cacheupdater.yaml"
    file.write_text(json.dumps(FILE))

    def run(*words, ends=exits.OK):
        assert main(["changes", *words, "-c", str(file)]) == ends
        return capsys.readouterr().out.splitlines()

    return run


def test_print_shows_the_statements_and_runs_none(database, run):
    shown = run("install", "--print")
    assert not database.holds
    assert shown == ["-- source shop, replication", "CREATE it;"]
    assert run("install") == [*shown, "-- source shop, replication: can be read"]
    shown = run("remove", "--print")
    assert database.holds
    assert run("remove") == shown == ["-- source shop, replication", "DROP it;"]
    assert not database.holds


def test_what_was_run_before_a_source_failed_is_shown(database, run, tmp_path, capsys):
    file = json.loads(json.dumps(FILE))
    file["sources"]["away"] = {**file["sources"]["shop"], "url": "postgresql+asyncpg://127.0.0.1:1/away"}
    file["namespaces"]["stock"] = {
        "key": "stock:{id:int}", "load": {"source": "away", "table": "stock"}, "changes": [{"table": "stock"}]
    }  # fmt: skip
    (tmp_path / "cacheupdater.yaml").write_text(json.dumps(file))
    assert main(["changes", "install", "-c", str(tmp_path / "cacheupdater.yaml")]) == exits.SOFTWARE
    said = capsys.readouterr()
    assert said.out.splitlines() == ["-- source shop, replication", "CREATE it;"]
    assert "the database is away" in said.err


def test_install_says_plainly_that_nothing_was_made(database, run):
    database.holds = True
    assert run("install") == [
        "-- source shop, replication: nothing was made",
        "-- source shop, replication: can be read",
    ]


def test_install_names_what_is_left_to_a_person_with_the_statements_that_mend_it(database, run):
    """They are comments, for nobody has run them."""
    database.lacking = [Lack("no index finds the rows", ["CREATE INDEX i ON products (at)"])]
    assert run("install", ends=exits.CONFIG) == [
        "-- source shop, replication",
        "CREATE it;",
        "-- source shop, replication, wrong: no index finds the rows",
        "--   CREATE INDEX i ON products (at);",
    ]


def test_a_feed_that_misses_something_can_be_read_and_install_notes_what(database, run):
    database.holds, database.lacking = True, [Lack("deleted rows are not told", grave=False)]
    assert run("install")[1:] == [
        "-- source shop, replication: can be read",
        "-- source shop, replication, note: deleted rows are not told",
    ]


def test_a_function_that_is_missing_still_is_a_comment_in_each_of_its_lines(database, run):
    database.lacking = [Lack("a function is missing", ["CREATE FUNCTION f() AS\n'SELECT 1'"], grave=False)]
    assert run("install")[-2:] == ["--   CREATE FUNCTION f() AS", "--   'SELECT 1';"]


def test_where_nothing_is_there_remove_has_nothing_to_do(database, run):
    nothing = ["-- source shop, replication: nothing to do"]
    assert run("remove", "--print") == run("remove") == nothing
    assert not database.holds
