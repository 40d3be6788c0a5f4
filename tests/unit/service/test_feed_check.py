"""`check --connect` names what a feed lacks, and stays readable."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace

from cacheupdater.feed_ports import Lack
from cacheupdater.service import feed_check

CONFIG = SimpleNamespace(
    fed=frozenset({"shop"}),
    namespaces={},
    sources={"shop": SimpleNamespace(name="shop", changes=SimpleNamespace(kind="notify"))},
)


async def found(monkeypatch, *lacks):
    async def asked():
        return lacks

    @asynccontextmanager
    async def opened(_config, _source):
        yield SimpleNamespace(lacks=asked)

    monkeypatch.setattr(feed_check, "opened", opened)
    return await feed_check.feeds(CONFIG, SimpleNamespace(config=CONFIG))


async def test_a_lack_comes_with_the_statement_that_mends_it(monkeypatch):
    [finding] = await found(monkeypatch, Lack("there is no slot", ["SELECT make_it()"]))
    assert (finding.state, finding.what) == ("wrong", "there is no slot; to mend it: SELECT make_it()")


async def test_statements_that_nobody_can_read_in_a_table_are_left_to_their_command(monkeypatch):
    function = "CREATE FUNCTION f() AS '" + "\n  PERFORM 1;" * 100 + "'"
    [finding] = await found(monkeypatch, Lack("there is no trigger", [function]))
    assert finding.what == (
        "there is no trigger; `cacheupdater changes install --print` shows the statements that mend it"
    )
