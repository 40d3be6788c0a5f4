"""Learned state as bytes: what is read back, the effect of time, and every kind of damage to a file."""

from __future__ import annotations

import json
import struct
from random import Random
from zlib import crc32

import numpy as np
import pytest

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.policy import Loaded
from cacheupdater.errors import Faulty
from cacheupdater.price import Market, Price, memory
from cacheupdater.price.learning import SLOW_MEMORY
from cacheupdater.price.table import LOADED, PALM, SEEN, SLOW, STATUS, TOUCHED, A, B
from cacheupdater_client.protocol.patterns import Pattern
from cacheupdater_client.protocol.wire import partition_of

WALL = 1_700_000_000.0


class Desk:
    """One process: its namespaces, market and policy."""

    def __init__(self, *, stamps=None, now=0.0, timed=False, learned=1000):
        self.source = Source("main", Bucket(100.0, 100.0, now=now), concurrency=5, timed=timed)
        stamps = {"product": "", "page": ""} if stamps is None else stamps
        self.namespaces = [
            Namespace(name, Pattern.compile(f"{name}:{{id:int}}"), self.source, terms=Terms(stamp=stamp))
            for name, stamp in stamps.items()
        ]
        self.keyspace = Keyspace([(each.pattern, each) for each in self.namespaces])
        self.markets = {self.source: Market(self.source, self.namespaces, random=lambda: 0.5, now=now)}
        self.limits = Limits(learned=learned)
        self.policy = Price(self.keyspace, self.namespaces, self.markets, limits=self.limits, now=now)

    @property
    def market(self):
        return self.markets[self.source]

    def read(self, *keys, times=1, at):
        for _ in range(times):
            self.policy.on_hints(list(keys), [1] * len(keys), at)

    def load(self, *keys, changed, at, stamps=()):
        self.policy.on_loaded(Loaded(Kind.TOUCH, keys, [changed] * len(keys), at, stamps), at)

    def row(self, key):
        (row,) = self.policy.table.find([key])
        return int(row)

    def state(self, key, *columns):
        return self.policy.table.state[self.row(key), list(columns)].tolist()

    def age(self, key, now):
        return now - self.policy.table.times[self.row(key), LOADED]


def file_of(desk, *, now, most=1000, wall=WALL):
    high = desk.policy.table.high
    copies = [memory.copy(desk.policy, at, now=now) for at in range(0, high, memory.CHUNK)]
    parts = [memory.learned(each) for each in copies]
    return b"".join(memory.file_of(parts, memory.prices_of(desk.markets), most=most, wall=wall))


def restored(data, *, down=0.0, now=0.0, **named):
    desk = Desk(now=now, **named)
    told = memory.read(data, wall=WALL + down)
    memory.restore_prices(desk.markets, told.prices)
    desk.left_out = memory.restore(
        desk.policy, desk.keyspace, told.learned, moment=memory.Moment(now, told.absent)
    )
    return desk


@pytest.fixture
def old():
    """A process that knows three keys and a price."""
    desk = Desk()
    desk.read(b"product:1", times=50, at=1000.0)
    desk.read(b"product:2", b"page:3", times=5, at=1001.0)
    desk.load(b"product:1", b"page:3", changed=True, at=1002.0)
    desk.load(b"product:1", changed=True, at=1012.0)
    desk.load(b"product:2", changed=False, at=1020.0)
    desk.market.price = 0.125
    return desk


def test_what_was_learned_comes_back_in_a_process_whose_clock_began_anew(old):
    new = restored(file_of(old, now=1030.0), down=5.0, now=3.0)

    assert new.left_out == 0
    assert new.market.price == 0.125
    assert new.market.tracked == 3
    for key in (b"product:1", b"product:2", b"page:3"):
        assert new.state(key, A, B, PALM, SEEN) == pytest.approx(old.state(key, A, B, PALM, SEEN))
        assert new.age(key, 3.0) == pytest.approx(old.age(key, 1030.0) + 5.0, abs=1e-3)
        assert new.state(key, STATUS) == [0.0]
    slow = old.state(b"product:1", SLOW)[0] * np.exp(-(30.0 + 5.0) / SLOW_MEMORY)
    slow /= 1.0 - np.exp(
        -1030.0 / SLOW_MEMORY
    )  # what it would be had it listened for ever: the new one takes it for that
    assert new.state(b"product:1", SLOW)[0] == pytest.approx(slow, rel=1e-4)
    assert new.policy.table.times[new.row(b"product:1"), TOUCHED] == 3.0


def test_a_restored_policy_decides_as_the_old_one_would_have(old):
    new = restored(file_of(old, now=1030.0))
    for desk, now in ((old, 1090.0), (new, 60.0)):
        desk.source.bucket.level(now)
        assert b"product:1" in desk.policy.on_hints([b"product:1"], [1], now)
    assert new.policy.tick(61.0) is not None


def test_long_absence_ages_values_fully_but_forgets_no_key(old):
    new = restored(file_of(old, now=1030.0), down=86_400.0)

    assert new.age(b"product:1", 0.0) == pytest.approx(86_400.0 + 18.0, abs=0.1)
    assert new.state(b"product:1", SLOW)[0] > 1.0
    new.policy.tick(1.0)
    assert len(new.policy.table) == 3


def test_a_clock_that_is_wrong_makes_no_absurd_ages(old):
    data = file_of(old, now=1030.0)

    assert memory.read(data, wall=WALL - 1e6).absent == 0.0
    assert memory.read(data, wall=WALL + 1e12).absent == memory.ABSENCE_MAX
    assert memory.read(data, wall=float("nan")).absent == 0.0


def test_silent_changes_and_stamps_come_back_where_they_mean_the_same():
    stamps = {"product": "version", "page": "age"}
    old = Desk(stamps=stamps)
    old.read(b"product:1", b"page:2", at=100.0)
    old.load(b"product:1", changed=True, at=100.0, stamps=[7.0])
    old.load(b"page:2", changed=True, at=100.0, stamps=[30.0])
    old.policy.on_changes([b"product:1"], 110.0)
    data = file_of(old, now=120.0)

    new = restored(data, down=10.0, now=1.0, stamps=stamps)
    at = new.row(b"product:1")
    assert new.policy.table.silent[at].tolist() == pytest.approx(
        old.policy.table.silent[old.row(b"product:1")].tolist()
    )
    assert new.policy.table.stamp[at] == 7.0
    assert 1.0 - new.policy.table.stamp[new.row(b"page:2")] == pytest.approx(50.0 + 10.0)

    other = restored(data, stamps={"product": "age", "page": ""})
    assert other.policy.table.stamp is None
    assert len(other.policy.table) == 2


def test_keys_of_namespaces_that_are_gone_or_have_another_pattern_are_left_out(old):
    data = file_of(old, now=1030.0)

    new = restored(data, stamps={"product": ""})
    assert (new.left_out, len(new.policy.table), new.market.tracked) == (1, 2, 2)
    renamed = restored(data, stamps={"goods": ""})
    assert (renamed.left_out, len(renamed.policy.table)) == (3, 0)


def test_a_source_that_is_paid_in_another_way_forgets_its_price(old):
    assert restored(file_of(old, now=1030.0), timed=True).market.price == 1.0


def test_the_most_read_keys_are_kept_where_not_all_find_room(old):
    kept = restored(file_of(old, now=1030.0, most=1))
    assert kept.policy.table.keys == [b"product:1"]

    full = restored(file_of(old, now=1030.0), learned=2)
    assert full.left_out == 1
    assert b"product:1" in full.policy.table.keys


def test_each_partition_gets_its_own_keys(old):
    parts = memory.read(file_of(old, now=1030.0), wall=WALL).learned.split(4)

    assert sorted(key for part in parts for key in part.keys) == [b"page:3", b"product:1", b"product:2"]
    for number, part in enumerate(parts):
        assert all(partition_of(key, 4) == number for key in part.keys)
        assert len(part.keys) == len(part.rows)


def test_a_key_that_stands_there_twice_comes_back_once(old):
    part = memory.learned(memory.copy(old.policy, 0, now=1030.0))
    data = b"".join(memory.file_of([part, part], {}, most=1000, wall=WALL))
    new = restored(data)

    assert len(new.policy.table) == 3


def test_a_process_that_knows_nothing_writes_a_file_too():
    assert restored(file_of(Desk(), now=1.0)).market.tracked == 0
    assert memory.read(b"".join(memory.file_of([], {}, most=1, wall=WALL)), wall=WALL).learned.keys == []


def test_no_cut_and_no_flipped_bit_gets_through(old):
    data = file_of(old, now=1030.0)
    for length in range(len(data)):
        with pytest.raises(Faulty):
            memory.read(data[:length], wall=WALL)
    draw = Random(1)
    for _ in range(2000):
        at = draw.randrange(len(data))
        damaged = bytearray(data)
        damaged[at] ^= 1 << draw.randrange(8)
        with pytest.raises(Faulty):
            memory.read(bytes(damaged), wall=WALL)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a file of learned state"),
        (b"# my notes\n" * 10, "not a file of learned state"),
        (struct.pack("<8sHI", memory.MAGIC, memory.VERSION + 1, 0) + bytes(100), "version 2"),
        (struct.pack("<8sHI", memory.MAGIC, memory.VERSION, 0) + bytes(100), "checksum"),
    ],
)
def test_a_foreign_file_is_refused_with_the_reason(data, why):
    with pytest.raises(Faulty, match=why):
        memory.read(data, wall=WALL)


def signed(header, body=b""):
    """A file with a right checksum, whatever it holds."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    rest = struct.pack("<I", len(text)) + text + body
    return struct.pack("<8sHI", memory.MAGIC, memory.VERSION, crc32(rest)) + rest


GOOD = {"wall": WALL, "namespaces": ["product"], "stamps": [""], "prices": {"main": [2.0, False]}, "keys": 1}


@pytest.mark.parametrize(
    "change",
    [
        b"\xff\xfe",
        b"[]",
        b"{}",
        {"keys": -1},
        {"keys": 10**12},
        {"keys": "many"},
        {"prices": [1]},
        {"prices": {"main": 3}},
        {"namespaces": 3},
        {"wall": None},
    ],
)
def test_nonsense_with_a_right_checksum_is_refused_too(change):
    header = change if isinstance(change, bytes) else {**GOOD, **change}
    with pytest.raises(Faulty, match="cannot be understood"):
        memory.read(signed(header, one_row() + b"product:1"), wall=WALL)


def one_row(**changed):
    row = np.zeros(1, memory._ROW)
    for name, value in {
        "length": 9,
        "a": 1.0,
        "b": 60.0,
        "slow": 5.0,
        "seen": 3.0,
        "stamp": np.nan,
        **changed,
    }.items():
        row[name] = value
    return row.tobytes()


@pytest.mark.parametrize(
    "wild",
    [
        *(
            {name: value}
            for name in ("a", "b", "slow", "palm", "seen", "loaded", "silent_a")
            for value in (np.nan, np.inf, -1.0)
        ),
        {"a": 0.0},
        {"b": 0.0},
        {"stamp": np.inf},
        {"space": 1},
        {"a": 1e30, "b": 1e30, "slow": 1e30, "palm": 1e30, "seen": 1e30, "loaded": 1e30},
        {"a": 1e-30, "b": 1e-30},
    ],
    ids=str,
)
def test_no_number_of_a_file_makes_a_decision_that_is_none(wild):
    new = restored(signed(GOOD, one_row(**wild) + b"product:1"))
    new.read(b"product:1", at=1.0)
    new.load(b"product:1", changed=True, at=2.0)
    new.read(b"product:1", at=3.0)
    new.policy.tick(4.0)

    table = new.policy.table
    assert np.isfinite(table.state[: table.high]).all()
    assert np.isfinite(table.times[: table.high]).all()
    assert np.isfinite(new.market.meter.total).all()
    assert 0.0 < new.market.price < 1e9


@pytest.mark.parametrize("price", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_price_that_is_none_is_ignored(price):
    assert restored(signed({**GOOD, "prices": {"main": [price, False]}, "keys": 0})).market.price == 1.0
