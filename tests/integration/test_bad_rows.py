"""One row in a hundred is poison, or slow: the others are refreshed as often as without it, by a real updater.

Of poison, the control is the same run before the rows become bad. Each poisoned key stands in quarantine once, with the loader's
own error. After the rows are mended, an operator's `quarantine retry` loads them.

Of slow rows, the control is another updater of a table without bad rows, at the same PostgreSQL and the same time: what else the
machine does takes from both. The slow keys are found within some refreshes.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections import Counter
from contextlib import redirect_stdout
from itertools import count
from statistics import median

import pytest
from live.bad_rows import POISON, is_healthy
from live.updater_process import config, eventually
from suite.beside import Beside

from cacheupdater.cli import main
from cacheupdater_client import Redis

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(240)]

KEYS = [f"item:{number}" for number in range(10_000)]
POISONED = {key for number, key in enumerate(KEYS) if not is_healthy(number)}
BEAT_S = 0.1
READS = 100  # a beat, so that every key is read again after ten seconds
HELD = "6s"  # less than that
SECONDS = 10.0  # of control, and twice as much of poison: the parts of a unit are loaded one after the other
KEPT = 0.95
ERROR = re.compile(r"live\.bad_rows:rows raised ValueError at .*/bad_rows\.py:\d+")
BUDGET = "6000/s"  # six times what the application needs: a unit with a poisoned key is cut smaller, and each part is paid

SLOW = 57  # of a hundred rows: this one
SLOW_S = 0.6  # of each slow row: at this pace they alone would take six connections of five
WINDOW_S = 10.0
WINDOWS = 5
LEARNED = 300  # suspects: each slow key, and two beside each
LEARNS_WITHIN_S = 150.0  # usually a minute
SQL = """SELECT id, statement_timestamp()::text AS loaded, pg_sleep(pause) IS NULL AS slept, 1 / whole AS whole
    FROM {} WHERE id IN :id"""


class Application(Beside):
    """As many reads as were due by now: a machine that holds it up delays them, and no more."""

    def __init__(self, redis_url, emit, keys=KEYS):
        super().__init__()
        self._url, self._emit, self._keys = redis_url, emit, keys

    def run(self):
        began = time.monotonic()
        with Redis.from_url(self._url, emit=self._emit) as client:
            for beat in count():
                if self.ended.wait(max(0.0, began + beat * BEAT_S - time.monotonic())):
                    return
                first = beat * READS % len(self._keys)
                client.mget(self._keys[first : first + READS])


def quarantine(updater, *arguments):
    """What `cacheupdater quarantine` prints."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(["quarantine", *arguments, "-c", str(updater.file)]) == 0
    return said.getvalue()


def healthy(log, since, until):
    """Healthy rows a second."""
    lines = (line.split() for line in log.read_text().splitlines())
    return sum(int(rows) for at, rows in lines if since <= float(at) < until) / (until - since)


class Renewals:
    """How many healthy values of a namespace are new. No value is new twice between two looks."""

    def __init__(self, plain, keys):
        self._plain = plain
        self._keys = [key for number, key in enumerate(keys) if number % 100 not in {POISON, SLOW}]
        self._seen = plain.mget(self._keys)

    def count(self):
        seen, self._seen = self._seen, self._plain.mget(self._keys)
        return sum(before != now for before, now in zip(seen, self._seen, strict=True))


def kept(bad, good):
    """The part of the control's rate in the next window. Each key is read once in a window."""
    counts = Counter()
    for _ in range(2):
        time.sleep(WINDOW_S / 2)
        counts["bad"] += bad.count()
        counts["good"] += good.count()
    return counts["bad"] / counts["good"]


def make(updaters, redis_url, files):
    """An updater of the bad rows."""
    load = {"source": "main", "python": "live.bad_rows:rows"}
    items = {"item": {"key": "item:{id:int}", "load": load}}
    settings = config(redis_url, {"main": {"budget": BUDGET}}, items, every=HELD)
    return updaters.make(settings, environment={name: str(path) for name, path in files.items()})


def test_poisoned_rows_take_nothing_from_the_others_and_are_loaded_when_mended(
    redis_url, updaters, plain, tmp_path, record_property
):
    log, bad, token = tmp_path / "loads", tmp_path / "bad", tmp_path / "token"
    token.write_text("an-operators-token-of-some-length")
    token.chmod(0o600)
    updater = make(updaters, redis_url, {"LOADER_LOG": log, "BAD_ROWS": bad})
    admin = {"listen": f"127.0.0.1:{updater.port}", "token_file": str(token)}
    updater.file.write_text(json.dumps(json.loads(updater.file.read_text()) | {"admin": admin}))
    updater.start()
    with Application(redis_url, updater.emit):
        eventually(lambda: None not in plain.mget(KEYS))
        began = time.monotonic()
        time.sleep(SECONDS)
        broken = time.monotonic()
        bad.touch()
        time.sleep(2 * SECONDS)
        mended = time.monotonic()

    control, kept = healthy(log, began, broken), healthy(log, broken, mended)
    record_property("figure: healthy rows a second, beside no poison", round(control))
    record_property("figure: healthy rows a second, beside 1 % poison, % of that", 100 * kept / control)
    assert kept >= KEPT * control, (kept, control)

    listed = json.loads(quarantine(updater, "list", "-o", "json"))["keys"]
    assert sorted(each["key"] for each in listed) == sorted(POISONED)
    # the kind of error and its place; a message could hold what is in the row
    assert [each for each in listed if not ERROR.fullmatch(each["error"])] == []
    bad.unlink()
    plain.delete(*POISONED)
    assert quarantine(updater, "retry", "--all") == f"retried {len(POISONED)}\n"
    eventually(lambda: None not in plain.mget(*POISONED))
    assert json.loads(quarantine(updater, "list", "-o", "json"))["keys"] == []


def make_beside(updaters, redis_url, database, pg_url, name):
    """An updater of a table of this name, whose rows are not bad yet."""
    database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, pause float DEFAULT 0, whole int DEFAULT 1)")
    database.execute(f"INSERT INTO {name} SELECT generate_series(0, $1::int - 1)", len(KEYS))
    load = {"source": "main", "sql": SQL.format(name)}
    spaces = {name: {"key": name + ":{id:int}", "load": load, "value": {"columns": ["loaded"]}}}
    source = {"url": pg_url, "budget": BUDGET, "statement_timeout": "1800ms"}
    return updaters.start(config(redis_url, {"main": source}, spaces, every=HELD))


@pytest.mark.timeout(420)
def test_slow_and_poisoned_rows_take_nothing_from_the_others_once_they_are_known(
    redis_url, updaters, plain, database, pg_url, record_property
):
    names = ("bad", "good")
    keys = {name: [f"{name}:{number}" for number in range(len(KEYS))] for name in names}
    bad, good = (make_beside(updaters, redis_url, database, pg_url, name) for name in names)
    with (
        Application(redis_url, bad.emit, keys["bad"]),
        Application(redis_url, good.emit, keys["good"]),
    ):
        for name in names:
            eventually(lambda name=name: None not in plain.mget(keys[name]))
        renewals = [Renewals(plain, keys[name]) for name in names]
        before = kept(*renewals)
        database.execute(f"UPDATE bad SET pause = {SLOW_S} WHERE id % 100 = {SLOW}")
        database.execute(f"UPDATE bad SET whole = 0 WHERE id % 100 = {POISON}")
        broken = time.monotonic()
        eventually(lambda: bad.metric("quarantined") > 0)
        eventually(lambda: bad.metric("slow_keys") > LEARNED)
        eventually(lambda: bad.metric("slow_keys") <= LEARNED, within=LEARNS_WITHIN_S, every=0.5)
        learned = time.monotonic() - broken
        for each in renewals:
            each.count()
        rates = [kept(*renewals) for _ in range(WINDOWS)]

    record_property("figure: healthy rows before 1 % are poison and 1 % slow, % of the control", 100 * before)
    record_property("figure: seconds until the slow rows are known", learned)
    record_property("figure: healthy rows beside these, % of the control, median", 100 * median(rates))
    record_property("figure: healthy rows beside these, % of the control, least", 100 * min(rates))
    record_property("figure: suspects of the control", good.metric("slow_keys"))
    assert median(rates) >= KEPT, rates
    assert bad.metric("slow_keys") >= len(KEYS) / 100, "the slow keys are known"
