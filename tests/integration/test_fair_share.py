"""A busy namespace gets its fair share of a source's budget beside many neighbours, by public names only.

The application misses ever new keys of the busy namespace and reads existing keys of the others, more than the budget allows.
The updater's `/metrics` count the rows that it loads. Shares are fractions of the sum, so the machine's pace does not matter.
"""

from __future__ import annotations

import re
import threading
import time
from itertools import count

import pytest
import redis
from live.updater_process import config, eventually

from cacheupdater_client import Redis

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(300)]

BUDGET = 500
MISSES = 200  # a second, of the busy one
READS = 600  # a second, of all the others together
BEAT_S = 0.1
WARM_S = 3.0  # until everybody stands in line
HELD_S = 1.0
AGAIN_S = 15.0  # until a neighbour's key is read again: longer than it is held
LESS = 0.95  # of a fair share
_ROWS = re.compile(r'^cacheupdater_rows_total{namespace="(.+)"} (\S+)$', re.MULTILINE)


class Application(threading.Thread):
    """As many reads as were due by now: a machine that holds it up delays them, and no more."""

    def __init__(self, redis_url, emit, neighbours):
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self._url, self._emit = redis_url, emit
        self._names = neighbours
        self.keys = round(READS * AGAIN_S / len(neighbours))  # of each
        with redis.Redis.from_url(redis_url) as stock, stock.pipeline(transaction=False) as all_at_once:
            for name in neighbours:
                for number in range(self.keys):
                    all_at_once.set(f"{name}:{number}", '"fine"')
            all_at_once.execute()

    def run(self):
        misses, reads, began = count(), count(), time.monotonic()
        with Redis.from_url(self._url, emit=self._emit) as client:
            for beat in count(1):
                if self.ended.wait(max(0.0, began + beat * BEAT_S - time.monotonic())):
                    return
                asked = [f"busy:{next(misses)}" for _ in range(round(MISSES * BEAT_S))]
                asked += [self._neighbours(next(reads)) for _ in range(round(READS * BEAT_S))]
                client.mget(asked)

    def _neighbours(self, number):
        turn, which = divmod(number, len(self._names))
        return f"{self._names[which]}:{turn % self.keys}"


def _rows(updater):
    return {name: float(rows) for name, rows in _ROWS.findall(updater.page("/metrics")[1])}


@pytest.mark.parametrize("others", [20, 1_000])
def test_busy_namespace_gets_its_fair_share_beside_many(others, updaters, redis_url, amount, record_property):
    seconds = amount(60, 60)
    neighbours = [f"n{number}" for number in range(others)]
    load = {"source": "main", "python": "live.loaders:plain"}
    spaces = {name: {"key": f"{name}:{{id:int}}", "load": load} for name in ["busy", *neighbours]}
    sources = {"main": {"budget": f"{BUDGET}/s"}}
    updater = updaters.start(config(redis_url, sources, spaces, every=f"{HELD_S:g}s"))
    application = Application(redis_url, updater.emit, neighbours)
    application.start()
    eventually(lambda: len(_rows(updater)) > 0.9 * others)
    time.sleep(WARM_S)
    before, began = _rows(updater), time.monotonic()
    time.sleep(seconds)
    after, took = _rows(updater), time.monotonic() - began
    application.ended.set()
    application.join()

    rows = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in spaces}
    fair = sum(rows.values()) / len(spaces)
    least = min(rows[name] for name in neighbours)
    record_property(
        f"figure: beside {others} neighbours, the busy one's rows, % of a fair share",
        100 * rows["busy"] / fair,
    )
    record_property(
        f"figure: beside {others} neighbours, the least of theirs, % of a fair share", 100 * least / fair
    )
    record_property(f"figure: beside {others} neighbours, rows a second", sum(rows.values()) / took)
    turn = max(1, BUDGET / len(spaces))  # rows that may come just after the last look
    assert rows["busy"] + turn >= LESS * fair, (rows["busy"], fair)
