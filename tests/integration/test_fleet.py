"""Two updater processes share the budget of one PostgreSQL, and one is killed: rows at the database, by its own clock.

Each value holds the database's time at which its row was read, and no key is loaded twice. So the values in Redis are a log of
all rows.
"""

from __future__ import annotations

import json
import time

import pytest
import redis
from hints.peer import HintPeer
from live.updater_process import config, eventually
from suite.pace import Metronome, busiest

from cacheupdater.core.shares import ASK_AGAIN, CLAIM_LIFE, EXCHANGE_EVERY
from cacheupdater_client.protocol.wire import MISS

BUDGET, BURST_S = 100, 1.0
ROWS = 4_000
TOGETHER_S = 5.0
AFTERWARDS = 400  # rows of the survivor: a full bucket, and then its rate
LATE_S = 0.5  # a row is paid before its token, its connection and its statement; a machine that holds them up adds to it
RECORD = "cacheupdater:fleet:shop:main"


@pytest.fixture
def plain(redis_url):
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def settings(redis_url, pg_url, database):
    database.execute(
        f"CREATE TABLE items (id bigint PRIMARY KEY); INSERT INTO items SELECT n FROM generate_series(1, {ROWS}) n"
    )
    sql = "SELECT id, extract(epoch FROM clock_timestamp())::float8 AS at FROM items WHERE id IN :id"
    namespace = {
        "key": "item:{id:int}",
        "load": {"source": "main", "sql": sql},
        "value": {"columns": ["at"]},
    }
    source = {"url": pg_url, "budget": f"{BUDGET}/s", "burst": f"{BURST_S}s"}
    return config(redis_url, {"main": source}, {"item": namespace}) | {
        "fleet": "shop",
        "defaults": {"refresh": {"every": "1h"}, "ttl": "3h"},
    }


def log_of(plain):
    """The database's times of all rows that were read, in order; and by whom."""
    keys = [f"item:{n}" for n in range(1, ROWS + 1)]
    values = {n: json.loads(value)["at"] for n, value in enumerate(plain.mget(keys), 1) if value}
    return sorted((at, "first" if n <= ROWS // 2 else "second") for n, at in values.items())


def ask(updater, begin, count):
    """Somebody has missed so many keys from this one on."""
    with HintPeer(updater.socket) as peer:
        for at in range(begin, begin + count, 100):
            peer.hint(MISS, *(b"item:%d" % n for n in range(at, at + 100)))


@pytest.mark.prove
def test_two_processes_spend_one_budget_and_the_survivor_takes_over_all_of_it(updaters, settings, plain):
    with Metronome() as control:
        log, killed, before = story_of_both(updaters, settings, plain)
    times = [at for at, _ in log]
    for seconds in (1.0, 5.0, 10.0):
        assert busiest(times, seconds) <= BUDGET * (seconds + BURST_S + LATE_S + 2 * control.latest)
    together = [who for at, who in log if at > times[killed - 1] - TOGETHER_S + 2.0][: 2 * BUDGET]
    assert 0.2 < together.count("first") / len(together) < 0.8
    took = times[before + AFTERWARDS - 1] - times[before]
    # with half of the budget it would be 2.3 times as long
    assert took < 1.7 * (AFTERWARDS / BUDGET - BURST_S) + 2 * control.latest
    assert set(plain.hgetall(RECORD)) == {"born"}


def story_of_both(updaters, settings, plain):
    """The whole log, and how long it was when one was killed and when the other was alone in earnest."""
    first, second = updaters.start(settings), updaters.start(settings)
    half = ROWS // 2
    ask(first, 1, 1000)
    ask(second, half + 1, 1000)
    eventually(lambda: {who for _, who in log_of(plain)} == {"first", "second"})
    time.sleep(TOGETHER_S)
    first.kill()
    killed = len(log_of(plain))
    time.sleep(CLAIM_LIFE + EXCHANGE_EVERY + ASK_AGAIN)
    before = len(log_of(plain))
    ask(second, half + 1001, 900)
    eventually(lambda: len(log_of(plain)) >= before + AFTERWARDS)
    log = log_of(plain)
    second.terminate()
    assert second.wait() == 0
    return log, killed, before


@pytest.mark.prove
def test_two_sidecars_spend_one_quota_together(updaters, settings, plain):
    quota, rows = BUDGET // 2, 500
    settings["namespaces"]["item"]["quota"] = {"rate": f"{quota}/s"}
    with Metronome() as control:
        first, second = (updaters.start(settings, arguments=("--sidecar",)) for _ in range(2))
        ask(first, 1, 1000)
        ask(second, ROWS // 2 + 1, 1000)
        eventually(lambda: len(log_of(plain)) >= rows)
    log = log_of(plain)[:rows]
    times = [at for at, _ in log]
    for seconds in (1.0, 5.0):
        assert busiest(times, seconds) <= quota * (seconds + 1.0 + LATE_S + 2 * control.latest)
    assert 0.3 < [who for _, who in log].count("first") / rows < 0.7
    print(f"{rows} rows of two sidecars in {times[-1] - times[0]:.1f} s; the quota allows {quota} a second")


def test_what_a_process_has_learned_survives_its_end_and_a_damaged_file_is_no_obstacle(
    updaters, settings, plain, tmp_path
):
    file = tmp_path / "learned"
    settings |= {"state": str(file), "defaults": {}}
    del settings["fleet"]
    updater = updaters.start(settings)
    ask(updater, 1, 100)
    eventually(lambda: updater.metric("hints_total") >= 100)
    updater.terminate()
    assert updater.wait() == 0
    assert file.stat().st_size > 100 * len("item:1")

    updater.start()
    assert "learned state of 100 keys" in updater.log
    updater.kill()
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    updater.start()
    (said,) = updater.complaints
    assert said.startswith(
        "the file of learned state is ignored, everything is learned anew: its checksum is wrong"
    )
    assert said.endswith(f"it is kept as {file}.old")


def test_a_state_that_can_never_be_written_ends_the_start_with_78(updaters, settings, tmp_path):
    updater = updaters.make(settings | {"state": str(tmp_path / "nowhere" / "learned")})
    updater.launch()
    assert updater.wait() == 78
    assert "nowhere/learned cannot be used: No such file or directory" in updater.log


@pytest.mark.prove
def test_rubbish_in_the_record_ends_no_updater_and_no_successor(updaters, settings, plain):
    far = "99999999999999"
    rubbish = {"x": f"1 {far} 1 abc def", "y": f"1 {far} nan 1 1", "z": "9" * 1_000_000, "born": "nan"}
    plain.hset(RECORD, mapping=rubbish)
    updater = updaters.start(settings)
    ask(updater, 1, 100)
    for broken in (lambda: plain.hset(RECORD, mapping=rubbish), lambda: plain.set(RECORD, "a string")):
        found = updater.metric("unsound_total", what="fleet")
        broken()
        eventually(lambda found=found: updater.metric("unsound_total", what="fleet") > found)
    eventually(lambda: plain.exists("item:1"), CLAIM_LIFE + 30.0)
    assert updater.running
    assert sum("fleet's record" in message for message in updater.messages) == 1
    updater.terminate()
    assert updater.wait() == 0
