"""A hundred reloads of a real updater under load, one in three refused: nothing is lost, mixed or overspent.

An application reads some items without a pause, and changes others, each of them once: nothing but this change loads the item. Of three files one is refused, one changes only what the source may spend,
and one names another loader, adds a namespace and removes another. So each load says which configuration made it. The simulation tells the same story in virtual time
(`tests/simulation/test_reloads.py`); this one has real connections, signals of a real loop, and Redis.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from itertools import combinations, count, pairwise
from statistics import median

import pytest
from live.reloaded import SLOWLY, loads_in
from live.updater_process import config, eventually
from suite.pace import Metronome
from suite.spending import worst

import cacheupdater_client
from cacheupdater.cli.asking import asked
from cacheupdater_client import Redis

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(300)]

RELOADS = 100
RATE = 80  # rows a second: less than the reads ask for, so that the budget is always spent
BURST_S = 1.0  # the default
ITEMS = 120  # that are read, and never change
BEAT_S = 0.05  # between two changes
SLOW = 30  # one change in so many is of an item whose first load outlasts a hand-over
SPENDING, HAND_OVER, WRONG = 0, 1, 2  # what becomes of a file, by its number modulo 3
COMING = 5  # names of namespaces that come and go
ON_THE_WAY_S = 0.05  # from the payment to the load: a call to Redis


class Application(threading.Thread):
    """Reads its items again and again, and announces a change of a new one with each beat."""

    def __init__(self, redis_url, emit):
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.changed = {}  # when each item was changed, at the earliest
        self.target = None  # what became of its hints
        self._url, self._emit = redis_url, emit

    def run(self):
        with Redis.from_url(self._url, emit=self._emit) as client:
            for number in count():
                if self.ended.wait(BEAT_S):
                    return
                client.mget([f"item:{number}" for number in range(ITEMS)])
                key = f"{SLOWLY if number % SLOW == 0 else 'changed'}{number}"
                self.changed[key] = time.monotonic()
                client.invalidate(key_of(key))


class Operator:
    """Writes one file after the other, and has the updater read each."""

    def __init__(self, updater):
        self._updater = updater
        self._said = json.loads(updater.file.read_text())
        self.handed_over = [0]  # the configurations with loaders of their own
        self.refused = 0

    def reload(self, number):
        """The answer of the updater."""
        kind = number % 3
        said = json.loads(json.dumps(self._said))
        said["sources"]["main"]["least_gain"] = str(number / 1000)
        by = self.handed_over[-1] if kind == SPENDING else number
        said["namespaces"] = served_by(by)
        if kind == WRONG:
            self._spoil(said, number)
        new = self._updater.file.with_suffix(".new")
        new.write_text(json.dumps(said))
        new.replace(self._updater.file)
        outcome = asked(f"127.0.0.1:{self._updater.port}", "/reload", method="POST", within=30.0)
        assert outcome["taken"] is (kind != WRONG), outcome
        if kind == HAND_OVER:
            self.handed_over.append(number)
        self.refused += kind == WRONG

    def _spoil(self, said, number):
        """A mistake in the file, a loader that cannot be imported, or a change that needs a restart, by turns."""
        mistake = number // 3 % 3
        if mistake == 0:
            said["namespaces"]["item"]["ttl"] = "soon"
        elif mistake == 1:
            said["namespaces"]["item"]["load"] = {"source": "main", "python": "live.no_such_module:items"}
        else:
            said["log_keys"] = "full"


def served_by(number):
    """The namespaces of this configuration. They are ours by declaration: else each new one would be watched for two seconds."""
    python = f"live.reloaded:by{number}"
    return {
        name: {
            "key": f"{name}:{{id}}",
            "load": {"source": source, "python": python},
            "value": {"foreign": "replace"},
        }
        for name, source in (("item", "main"), (coming(number), "main"), (SLOWLY, "other"))
    }


def key_of(name):
    """Slow items are of a namespace and a source of their own, so that the others go on meanwhile."""
    return f"{SLOWLY if name.startswith(SLOWLY) else 'item'}:{name}"


def coming(number):
    return f"extra{number % COMING}"


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "loads"
    file.touch()
    return file


@pytest.fixture
def updater(updaters, redis_url, log):
    sources = {"main": {"budget": f"{RATE}/s"}, "other": {"budget": "1000/s", "statement_timeout": "1800ms"}}
    settings = config(redis_url, sources, served_by(0))
    return updaters.start(settings, environment={"LOADER_LOG": str(log)})


@pytest.fixture
def story(updater, redis_url, plain, log):
    """The hundred reloads; afterwards the application has ended and each change has had its refresh, or patience has."""
    application, operator = Application(redis_url, updater.emit), Operator(updater)
    with Metronome() as control, Redis.from_url(redis_url, emit=updater.emit) as client:
        application.start()
        try:
            eventually(lambda: loads_in(log))
            for number in range(RELOADS):
                operator.reload(number)
                if number % 3 == HAND_OVER:
                    serves_what_has_come(client, number)
                assert updater.metric("config_last_reload_successful") == (number % 3 != WRONG)
        finally:
            application.ended.set()
            application.join()
        eventually(lambda: not lost(application.changed, loads_in(log)))
        application.target = cacheupdater_client.stats()["targets"][updater.emit]
    return application, operator, loads_in(log), control


def serves_what_has_come(client, number):
    """A key of the namespace that this file has added gets its value by this file's loader."""
    key = f"{coming(number)}:{number}"
    eventually(lambda: json.loads(client.get(key) or "{}").get("by") == number)


def lost(changed, loads):
    """The changed items that no load has read to its end since."""
    last = {key: load.began for load in loads if not load.cancelled for key in load.keys}
    return [key for key, at in changed.items() if last.get(key, 0.0) < at]


def test_a_hundred_reloads_under_load_lose_mix_and_overspend_nothing(story, updater, plain, record_property):
    application, operator, loads, control = story

    # no hint lost: each change had its refresh, and the value in Redis is of that one or a later one
    assert lost(application.changed, loads) == []
    values = {key: json.loads(plain.get(key_of(key)) or "null") for key in application.changed}
    assert [key for key, value in values.items() if value and value["at"] < application.changed[key]] == []
    # reads of a namespace that the client did not know yet are undeclared
    assert application.target["dropped"].keys() <= {"undeclared"}

    # no two configurations at once: neither in time, nor for a key
    assert [later for earlier, later in pairwise(loads) if later.by < earlier.by] == []
    assert {load.by for load in loads} == set(operator.handed_over)
    assert mixed(loads) == []

    spent = [(load.began, len(load.keys)) for load in loads if not load.keys[0].startswith(SLOWLY)]
    late = ON_THE_WAY_S + 2 * control.latest
    burst = worst(spent, RATE)
    rows, took = sum(rows for _, rows in spent), loads[-1].began - loads[0].began
    assert burst <= RATE * (BURST_S + late)
    assert rows > 0.5 * RATE * took  # else the budget was no bound

    # an invalid file: the metric, and one line of the log for each time that it was read
    refusals = updater.log.count("the configuration is not taken over")
    looks = updater.log.count("has changed, and is read again")
    assert operator.refused <= refusals <= operator.refused + looks

    cancelled = [load for load in loads if load.cancelled]
    assert cancelled  # a hand-over has ended them, and the next configuration has served their keys
    ended = {load.by for load in cancelled}
    pauses = [
        (later.began - earlier.began, earlier.by)
        for earlier, later in pairwise(loads)
        if later.by != earlier.by
    ]
    usual = [gap for gap, by in pauses if by not in ended]
    slow = [gap for gap, by in pauses if by in ended]
    record_property(
        "figure: a hand-over stops loads for (ms, median and most)",
        f"{in_ms(usual)}; {in_ms(slow)} where it had to end a load; between other loads"
        f" {in_ms([later.began - earlier.began for earlier, later in pairwise(loads) if later.by == earlier.by])};"
        f" a thread that only sleeps was late by at most {1000 * control.latest:.0f}",
    )
    record_property(
        "figure: reloads under load",
        f"{RELOADS} in {took:.0f} s with {rows} rows; {len(pauses)} hand-overs, {operator.refused} refused; fullest window"
        f" {burst:.0f} rows above the rate, {RATE * BURST_S:.0f} may be; {len(application.changed)} changes,"
        f" {len(cancelled)} loads ended by a hand-over",
    )


def in_ms(gaps):
    return f"{1000 * median(gaps):.0f} and {1000 * max(gaps):.0f}" if gaps else "none"


def mixed(loads):
    """The loads of one key that overlap and are of two configurations."""
    by_key = defaultdict(list)
    for load in loads:
        for key in load.keys:
            by_key[key].append(load)
    return [
        (earlier, later)
        for each in by_key.values()
        for earlier, later in combinations(each, 2)
        if later.began < earlier.ended and later.by != earlier.by
    ]
