"""The pure parts of the feed `poll`: kinds of columns, the form of marks, and statements for databases without tuples."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from sqlalchemy import types
from sqlalchemy.dialects import mysql, postgresql

from cacheupdater.adapters.feed_poll import columns, places, table
from cacheupdater.adapters.feed_poll.columns import Clock, cell, is_early, is_fine, kind_of
from cacheupdater.core.watermark import Kept, Look, Place
from cacheupdater.errors import Faulty, Misconfigured

NOW = Clock(datetime(2026, 11, 26, 3, tzinfo=UTC).timestamp(), datetime(2026, 11, 26, 5))  # noqa: DTZ001  as a driver gives it


@pytest.mark.parametrize(
    ("kind", "dialect", "found"),
    [
        (types.DateTime(timezone=True), "postgresql", "zoned"),
        (types.DateTime(), "postgresql", "zoneless"),
        (mysql.DATETIME(fsp=6), "mysql", "zoneless"),
        (types.DateTime(), "sqlite", "text"),
        (types.BigInteger(), "postgresql", "whole"),
        (types.Numeric(20, 0), "oracle", "whole"),
        (types.Text(), "sqlite", "text"),
    ],
)
def test_times_whole_numbers_and_texts_can_be_polled_by(kind, dialect, found):
    assert kind_of("t.c", kind, dialect) == found


@pytest.mark.parametrize(
    "kind",
    [
        types.Date(),
        types.Float(),
        postgresql.DOUBLE_PRECISION(),
        types.Numeric(10, 2),
        types.Boolean(),
        types.Uuid(),
        types.JSON(),
        types.LargeBinary(),
        types.Time(),
        types.Enum("a", "b"),
        types.NullType(),
    ],
)
def test_other_types_are_refused_with_the_columns_name(kind):
    with pytest.raises(
        Misconfigured, match=r"the column shop\.t\.c has the type .*, by which no feed can poll"
    ):
        kind_of("shop.t.c", kind, "postgresql")


def test_a_time_is_early_by_the_later_of_both_clocks_if_it_has_no_zone():
    for hours, early in ((-1, False), (1, False), (3, True)):  # the session is two hours ahead of UTC
        moment = datetime(2026, 11, 26, 3, tzinfo=UTC) + timedelta(hours=hours)
        plain = moment.replace(tzinfo=None)
        assert is_early("zoneless", plain, NOW) is early
        assert is_early("text", plain.isoformat(" "), NOW) is early
        assert is_early("zoned", moment, NOW) is (hours > 0)
        assert is_early("text", moment.isoformat(), NOW) is (hours > 0)
    assert not is_early("whole", 10**12, NOW)
    assert not is_early("text", "v1", NOW)


def test_only_a_value_of_microseconds_names_one_change():
    assert is_fine(7)
    assert not is_fine(1_795_662_000)  # may be seconds since 1970
    assert not is_fine(1_795_662_000_000)
    assert is_fine(1_795_662_000_000_000)
    assert is_fine(datetime(2026, 11, 26, 3, 0, 0, 123456))  # noqa: DTZ001
    assert not is_fine(datetime(2026, 11, 26, 3, 0, 0, 123000))  # noqa: DTZ001
    assert is_fine("2026-11-26 03:00:00.123456")
    assert not is_fine("2026-11-26 03:00:00")
    assert not is_fine("v1")


def test_cells_are_whole_numbers_uuids_and_texts():
    assert [cell(each) for each in (7, UUID(int=7), "7", None, True, Decimal("1.50"))] == [
        7,
        UUID(int=7),
        "7",
        None,
        "True",
        "1.50",
    ]


def test_clocks_of_databases_are_seconds_since_1970_and_a_local_time():
    plain = datetime(2026, 11, 26, 3)  # noqa: DTZ001
    assert columns.clock(None, plain) == Clock(plain.replace(tzinfo=UTC).timestamp(), plain)
    assert columns.clock(None, plain.replace(tzinfo=UTC)).seconds == plain.replace(tzinfo=UTC).timestamp()
    assert columns.clock(Decimal("1.5"), plain) == Clock(1.5, plain)
    assert columns.clock(0.0, None).local == datetime(1970, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize(
    "value",
    [7, "text", datetime(2026, 11, 26, 3, 0, 0, 1, tzinfo=UTC), datetime(2026, 11, 26), Decimal(7)],  # noqa: DTZ001
)
def test_places_come_back_as_they_were_written(value):
    key = (1, "ö", UUID(int=7), Decimal("1.5"), date(2026, 11, 26), b"\xff", 0.1, True)
    kept = Kept(Place(value), Place(value, key))
    assert places.read(places.written(kept), "feed") == kept
    assert places.read(places.written(Kept(None, None)), "feed") == Kept(None, None)


def test_a_key_that_cannot_be_written_leaves_the_place_before_all_rows_of_its_value():
    kept = places.read(places.written(Kept(None, Place(7, (timedelta(1),)))), "feed")
    assert kept == Kept(None, Place(7))


@pytest.mark.parametrize(
    "text", ["", "[]", "[1,2]", '[[["int","x"]],null]', '[[["no","1"]],null]', "[[],[]]"]
)
def test_a_mark_of_rubbish_is_faulty(text):
    with pytest.raises(Faulty, match="the mark of feed in Redis is not ours"):
        places.read(text, "feed")


@pytest.mark.parametrize("tuples", [True, False])
def test_looks_read_each_row_once_in_order_on_databases_with_tuples_and_without(
    tuples, monkeypatch, tmp_path
):
    from sqlalchemy import create_engine

    from cacheupdater.adapters.feed_poll.settings import PollTable
    from cacheupdater.feed_ports import Watched

    monkeypatch.setattr(table, "_TUPLES", {"sqlite"} if tuples else set())
    dice = random.Random(7)
    rows = [(dice.randrange(5), first, second) for first in range(12) for second in range(12)]
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute("CREATE TABLE t (v INTEGER, a INTEGER, b INTEGER, PRIMARY KEY (a, b))")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        database.commit()
    engine = create_engine(f"sqlite:///{tmp_path}/t.db")
    with engine.connect() as connection:
        known = table.found(connection, PollTable(Watched("t", ("b",)), "v"))
        look = Look("near", Place(1), Place(3), 0.0)
        read = []
        while True:
            asked, parameters = known.statement(look, 7)
            some = connection.execute(asked, parameters).all()
            read += [tuple(row[:3]) for row in some]
            if len(some) < 7:
                break
            look = look._replace(after=known.place(some[-1]))
    engine.dispose()
    assert read == sorted(row for row in rows if 1 <= row[0] <= 3)
