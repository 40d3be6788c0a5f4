"""Updaters that share a queue in a SQL database, as an operator runs them: no Kafka, one configuration, two processes.

Hints are put by a depot of the test's own. One updater is killed, one is stopped, and no change is lost.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from live.checking import checked
from live.updater_process import config, eventually

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.core import depot_url
from cacheupdater_client import Redis
from cacheupdater_client.protocol.wire import CHANGE, MISS, encode_pack, partition_of

# the commands run in this process: their answers are judged, not their times
pytestmark = [
    pytest.mark.live,
    pytest.mark.untimed,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("patient"),
]

SESSION_S = 2.0
PARTITIONS = 6
LOAD = {"source": "main", "python": "live.bad_rows:rows"}
KEYS = [f"item:{number}" for number in range(60)]


@pytest.fixture
def file_url(tmp_path):
    return f"sqlite:///{tmp_path}/queue.db?partitions={PARTITIONS}"


@pytest.fixture
def server_url(pg_url):
    return f"{pg_url}{'&' if '?' in pg_url else '?'}partitions={PARTITIONS}"


@pytest.fixture(params=["file_url", "server_url"])
def url(request):
    return request.getfixturevalue(request.param)


def settings_for(redis_url, url):
    items = {"item": {"key": "item:{id:int}", "load": LOAD}}
    said = config(redis_url, {"main": {"budget": "1000/s"}}, items, every="200ms")
    return said | {"queue": {"url": f"{url}&session_timeout={SESSION_S:g}s"}, "listen": None}


def hint(url, kind):
    """Puts a hint of this kind for each key, as a collector would."""

    async def put():
        depot = depot_at(depot_url.parse(url))
        try:
            await depot.open()
            packs = [
                (
                    partition_of(each.encode(), PARTITIONS),
                    encode_pack(kind, time.time_ns() // 1_000_000, [each.encode()]),
                )
                for each in KEYS
            ]
            await depot.put(packs)
        finally:
            await depot.close()

    asyncio.run(put())


def is_filled(url, plain):
    """Whether all keys have a value. If not, readers miss them once more: one miss is declined if it comes within the gap (100 ms)
    after a refresh."""
    if None not in plain.mget(KEYS):
        return True
    hint(url, MISS)
    return False


@pytest.mark.prove
@pytest.mark.parametrize("url", ["file_url", "server_url"], indirect=True)
def test_hints_in_a_database_are_served_and_a_killed_updater_is_replaced(redis_url, url, updaters, plain):
    settings = settings_for(redis_url, url)
    first, second = (updaters.make(settings).start() for _ in range(2))
    hint(url, MISS)
    eventually(lambda: None not in plain.mget(KEYS))

    first.kill()
    killed = time.monotonic()
    plain.delete(*KEYS)
    eventually(lambda: is_filled(url, plain), every=0.5)
    assert time.monotonic() - killed < SESSION_S + 10.0

    third = updaters.make(settings).start()
    second.terminate()
    assert second.wait() == 0
    for key in KEYS:
        plain.set(key, '"old"')
    hint(url, CHANGE)
    eventually(
        lambda: {each.decode() for each in plain.mget(KEYS) if each} == {f'"row {n}"' for n in range(60)}
    )
    assert third.running


def test_hints_of_an_application_come_through_a_collector(redis_url, url, updaters, collectors, plain):
    updater = updaters.make(settings_for(redis_url, url)).start()
    collector = collectors(url).start()
    with Redis.from_url(redis_url, emit=collector.emit, only=["item:"]) as client:
        client.mget(KEYS)
        eventually(lambda: None not in plain.mget(KEYS))
        for key in KEYS:
            plain.set(key, '"old"')
        client.invalidate(*KEYS)
        client.mget(KEYS)
        eventually(lambda: all(each and each.startswith(b'"row ') for each in plain.mget(KEYS)))
    loaded = Path(f"/proc/{collector.pid}/maps").read_text()
    assert not {name for name in ("numpy", "sqlalchemy", "pydantic_core") if f"/{name}" in loaded}
    collector.terminate()
    assert collector.wait() == 0
    assert updater.running


def test_check_tries_the_tables_and_says_what_is_wrong(redis_url, url, updaters):
    settings = settings_for(redis_url, url)
    code, said = checked(updaters.make(settings).file)
    assert (code, "6 partitions; this updater may read them" in said) == (0, True), said

    other = json.loads(json.dumps(settings))
    other["queue"]["url"] = other["queue"]["url"].replace("partitions=6", "partitions=7")
    code, said = checked(updaters.make(other).file)
    assert code != 0
    assert "there are 6 partitions, and the URL says 7" in said


def test_check_refuses_a_wrong_password_and_does_not_repeat_it(redis_url, server_url, updaters):
    where = server_url.partition("://")[2].rpartition("@")[2]
    settings = settings_for(redis_url, f"postgresql+asyncpg://nobody_here:canary77@{where}")
    code, said = checked(updaters.make(settings).file)
    assert code != 0
    assert "queue" in said
    assert "canary77" not in said


def test_check_refuses_a_file_that_cannot_be_written(redis_url, updaters, tmp_path, capsys):
    settings = settings_for(redis_url, f"sqlite:///{tmp_path}/missing/queue.db?partitions=6")
    code, said = checked(updaters.make(settings).file)
    assert (code, said) == (78, "")
    assert "let the updater's user write to both" in capsys.readouterr().err
