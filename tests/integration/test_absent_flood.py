"""A million keys that do not exist in less than a minute, from the real client to a real updater: who pays, and what stays.

An application asks for random numbers, for other spellings of existing keys (`item:007`), and for names that fit no pattern.
Another application misses known keys. The loader notes each row that it is asked for and that does not exist.
"""

from __future__ import annotations

import re
import time
from multiprocessing import get_context
from random import Random
from statistics import quantiles

import psutil
import pytest
from live.loaders import FEW
from live.updater_process import config, eventually

from cacheupdater.core.absent_bucket import BURST_S
from cacheupdater_client import Redis, close

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(300)]

KEYS, PACK = 1_000_000, 1_000
SECONDS = 40.0  # of the flood
QUOTA, SHARE = 100.0, 0.1
KNOWN = [f"item:{number}" for number in range(FEW)]
FLOOR_S = 60.0  # the life of an absent row's floor
GROWTH = (
    48 << 20
)  # bytes: 20,000 waiting keys, and 100,000 keys of nobody. A million keys would take more than twice as much
LONG_S, RARE = 0.02, 0.002  # of processor time: two longer turns in a thousand
LONGEST_S = 0.1
TIMES, PROMPT_S = (
    10,
    0.5,
)  # of the control: the flood's senders take processor time. Without the bucket most would not be served


def made_up(random):
    """60 % random numbers, 20 % aliases, 20 % keys of nobody."""
    number = random.getrandbits(50)
    kind = number % 5
    if kind == 3:
        return f"item:{number % FEW:0{3 + number % 40}d}"
    return f"item:x{number}" if kind == 4 else f"item:{FEW + number}"


def flood(redis_url, emit, seconds):
    """An application of its own, which asks for a thousand keys at a time."""
    random, began, packs = Random(1), time.monotonic(), KEYS // PACK
    with Redis.from_url(redis_url, emit=emit) as client:
        for pack in range(packs):
            time.sleep(max(0.0, began + pack * seconds / packs - time.monotonic()))
            client.mget([made_up(random) for _ in range(PACK)])
    close()


def absent_rows(log, since=0.0):
    """How many rows that do not exist the loader was asked for."""
    notes = (line.split() for line in log.read_text("utf-8").splitlines()) if log.exists() else ()
    return sum(int(rows) for at, rows in notes if float(at) >= since)


def most_in(log, seconds):
    """Absent rows of the window that has most."""
    notes = [(float(at), int(rows)) for at, rows in map(str.split, log.read_text("utf-8").splitlines())]
    return max(sum(rows for at, rows in notes if first <= at < first + seconds) for first, _ in notes)


def series(updater):
    return sum(not line.startswith("#") for line in updater.page("/metrics")[1].splitlines())


def turns(updater):
    """How many there were, and how many took longer than some bounds: of processor time, on one look."""
    found = re.findall(r'turn_cpu_seconds_bucket{le="(.+)"} (\S+)', updater.page("/metrics")[1])
    within = {bound: float(number) for bound, number in found}
    return within["+Inf"], {bound: within["+Inf"] - within[f"{bound:g}"] for bound in (LONG_S, LONGEST_S)}


def floors(plain):
    """The floors of made-up keys, and when each ends."""
    names = [
        name for name in plain.scan_iter("__crs:*", count=1_000) if name.rpartition(b":")[2] not in FOUND
    ]
    with plain.pipeline(transaction=False) as all_at_once:
        for name in names:
            all_at_once.pttl(name)
        lives = all_at_once.execute()
    now = time.monotonic()
    return {name: now + life / 1000.0 for name, life in zip(names, lives, strict=True) if life != -2}, lives


FOUND = {b"%d" % number for number in range(FEW)}


def missed_and_filled(plain, client, key):
    """Seconds from a miss of a known key until a reader finds its value. It reads again and again, as readers do."""
    plain.delete(key)
    began = time.monotonic()
    eventually(lambda: client.get(key), every=0.005)
    return time.monotonic() - began


@pytest.fixture
def log(tmp_path):
    """Where the loader notes the rows that do not exist."""
    return tmp_path / "loads"


@pytest.fixture
def updater(updaters, redis_url, log):
    space = {
        "key": "item:{id:int}",
        "load": {"source": "main", "python": "live.loaders:few"},
        "quota": {"rate": f"{QUOTA:g}/s"},
        "missing": {"share": f"{SHARE:.0%}", "ttl": "30s"},
    }
    settings = config(redis_url, {"main": {"budget": "1000/s"}}, {"item": space})
    del settings["defaults"]["refresh"]
    return updaters.start(settings, environment={"LOADER_LOG": str(log)})


def test_a_million_made_up_keys_cost_their_bucket_and_nothing_else(
    updater, redis_url, plain, log, record_property
):
    with Redis.from_url(redis_url, emit=updater.emit) as client:
        client.mget(KNOWN)
        eventually(lambda: plain.exists(*KNOWN) == FEW)
        quiet = [missed_and_filled(plain, client, key) for key in KNOWN[:50]]
        attack = get_context("spawn").Process(target=flood, args=(redis_url, updater.emit, SECONDS))
        attack.start()
        eventually(lambda: updater.metric("hints_total") >= KEYS // 100)
        began = time.monotonic()
        eventually(lambda: updater.metric("hints_total") >= KEYS // 5)
        early_memory = psutil.Process(updater.pid).memory_info().rss
        early_floors, _ = floors(plain)
        waits, memories, half_way = [], [], 0
        while attack.is_alive():
            waits.append(missed_and_filled(plain, client, KNOWN[len(waits) % FEW]))
            memories.append(psutil.Process(updater.pid).memory_info().rss)
            if not half_way and time.monotonic() >= began + SECONDS / 2:
                half_way = series(updater)
            time.sleep(0.1)
        eventually(lambda: updater.metric("hints_total") >= 0.99 * KEYS)
        took = time.monotonic() - began

        late_floors, lives = floors(plain)
        asked = absent_rows(log, began)
        grown = max(memories) - early_memory
        number, longer = turns(updater)
        p90, alone = (quantiles([*each, max(each)], n=10)[-1] for each in (waits, quiet))
        figures = {
            "hints that the updater heard": updater.metric("hints_total"),
            "seconds": took,
            "rows that do not exist": asked,
            "most of them in 10 s": most_in(log, 10.0),
            "hints dropped as nobody's": updater.metric("dropped_total", reason="unknown"),
            "hints dropped by the backlog": updater.metric("dropped_total", reason="backlog"),
            "p90 of misses of known keys, s": p90,
            "the same without the flood, s": alone,
            "memory grown by, MiB": grown / 2**20,
            "series half-way": half_way,
            "series at the end": series(updater),
            "floors of made-up keys": len(late_floors),
            "turns": number,
            **{f"turns longer than {bound:g} s of CPU": many for bound, many in longer.items()},
        }
        for name, figure in figures.items():
            record_property(f"figure: a million made-up keys: {name}", figure)

        under_way = QUOTA  # of units that had started before their absent rows were charged
        assert asked <= SHARE * QUOTA * (took + BURST_S) + under_way
        eventually(lambda: updater.metric("absent_rows_total", namespace="item") >= 0.9 * asked)
        assert p90 <= TIMES * alone + PROMPT_S
        assert grown <= GROWTH
        assert series(updater) == half_way, "no key makes a series"
        assert all(0 < life <= 1000 * FLOOR_S for life in lives)
        prolonged = [
            name for name in early_floors.keys() & late_floors if late_floors[name] > early_floors[name] + 1.0
        ]
        assert early_floors
        assert prolonged == []
        assert longer[LONG_S] <= max(1.0, RARE * number), longer
        assert longer[LONGEST_S] == 0.0, longer
        assert any(each.startswith("absent item: ") for each in updater.troubles)
