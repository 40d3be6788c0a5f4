"""How messages become batches, and at which places these are confirmed."""

from __future__ import annotations

import pytest
from feeds import pgoutput as pg

from cacheupdater.adapters.feed_replication import batching as batching_module
from cacheupdater.adapters.feed_replication.batching import Batching
from cacheupdater.adapters.feed_replication.decode import Decoder, Table
from cacheupdater.adapters.feed_replication.progress import Progress
from cacheupdater.feed_ports import Batch

ITEMS = 16384


class Stream:
    """A server that sends transactions of one table."""

    def __init__(self):
        self.progress = Progress(50)
        decoder = Decoder({("public", "items"): Table("public.items", ("id",))})
        self.batching = Batching(decoder, self.progress, slot_name="shop", tables=["public.items"])
        self.send(pg.relation(ITEMS, "public", "items", ("id", pg.BIGINT, True)))

    def send(self, *messages, begins=0):
        for message in messages:
            self.batching.take(begins, message)

    def rows(self, *ids):
        self.send(*(pg.insert(ITEMS, pg.row(each)) for each in ids))

    def transaction(self, end, *ids, committed=0):
        self.send(pg.begin(end, committed))
        self.rows(*ids)
        self.send(pg.commit(end, committed))

    def ids(self):
        batch = self.batching.given()
        return batch and [row["id"] for change in batch.changes for row in change.rows]


@pytest.fixture
def stream():
    return Stream()


def test_nothing_read_gives_no_batch(stream):
    assert stream.batching.given() is None
    stream.transaction(100)
    assert stream.batching.given() is None
    assert stream.progress.tell() == 100


def test_a_batch_holds_whole_transactions_and_ends_where_the_last_does(stream):
    stream.transaction(100, 1, 2, committed=1_000_000)
    stream.transaction(200, 3, committed=2_000_000)
    batch = stream.batching.given()
    assert [change.rows[0]["id"] for change in batch.changes] == [1, 2, 3]
    assert (batch.position, batch.committed) == (200, 946_684_802)
    assert stream.batching.given() is None


def test_parts_of_a_transaction_confirm_only_those_before_it_and_its_end_comes_by_itself(stream):
    stream.transaction(100, 1)
    stream.send(pg.begin(200))
    stream.rows(2)
    first = stream.batching.given()
    stream.rows(3)
    second = stream.batching.given()
    stream.send(pg.commit(200))
    third = stream.batching.given()
    assert [first.position, second.position, third.position] == [100, 100, 200]
    assert [len(each.changes) for each in (first, second, third)] == [2, 1, 0]
    stream.progress.confirmed(100)
    assert stream.progress.tell() == 100
    stream.progress.confirmed(200)
    assert stream.progress.tell() == 200


def test_a_batch_is_full_at_its_bound(stream, monkeypatch):
    monkeypatch.setattr(batching_module, "EVENTS_MAX", 3)
    stream.send(pg.begin())
    stream.rows(1, 2)
    assert not stream.batching.full
    stream.rows(3)
    assert stream.batching.full
    stream.batching.given()
    assert not stream.batching.full


def test_a_truncate_is_told_with_its_reason_and_must_be_confirmed(stream):
    stream.send(pg.begin(200), pg.truncate(ITEMS), pg.commit(200))
    batch = stream.batching.given()
    assert (batch.emptied, batch.position) == (("public.items",), 200)
    assert "truncated" in batch.why
    assert not stream.progress.settled


def test_the_word_of_lost_changes_empties_all_tables_and_must_be_confirmed(stream):
    stream.send(pg.said(300, "cacheupdater", b"shop lost the slot had gone"))
    batch = stream.batching.given()
    assert batch == Batch([], 300, None, ("public.items",), "the slot had gone")
    assert not stream.progress.settled
    stream.progress.confirmed(300)
    assert stream.progress.tell() == 300


def test_changes_that_were_lost_before_the_stream_began_are_told_at_its_beginning(stream):
    stream.batching.lost("the slot had gone")
    batch = stream.batching.given()
    assert (batch.emptied, batch.position) == (("public.items",), 50)
    assert stream.progress.tell() == 0
    stream.progress.confirmed(50)
    assert stream.progress.tell() == 50


@pytest.mark.parametrize(
    ("prefix", "content"),
    [
        ("cacheupdater", b"other lost the slot had gone"),
        ("other", b"shop lost the slot had gone"),
        ("cacheupdater", b""),
        ("cacheupdater", b"\xff\xfe"),
        ("cacheupdater", b"shop beat soon"),
    ],
)
def test_words_of_others_tell_nothing_and_are_confirmed_by_themselves(stream, prefix, content):
    stream.send(pg.said(300, prefix, content))
    assert stream.batching.given() is None
    assert stream.batching.beat is None
    assert stream.progress.tell() == 300


def test_a_heartbeat_that_comes_back_says_when_it_was_said(stream):
    stream.send(pg.said(300, "cacheupdater", b"shop beat 1732590000.123"))
    assert stream.batching.given() is None
    assert stream.batching.beat == 1732590000.123
