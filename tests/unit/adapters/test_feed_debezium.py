"""The parts of the feed of Debezium's topics that need no broker."""

from __future__ import annotations

from typing import NamedTuple

import pytest

pytest.importorskip("aiokafka")

from aiokafka import TopicPartition
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from feeds.debezium_events import event, key

from cacheupdater.adapters.feed_debezium import one_reader
from cacheupdater.adapters.feed_debezium.batching import TRUNCATED, Batching
from cacheupdater.adapters.feed_debezium.places import Offsets, begin
from cacheupdater.adapters.feed_debezium.topics import SHOWN, Table, tables_of, topic_of
from cacheupdater.adapters.feed_debezium.turn import Turn
from cacheupdater.errors import Misconfigured
from cacheupdater.feed_ports import Skipped, Watched
from cacheupdater.testing.virtual_loop import run

# --- topics ---------------------------------------------------------------------------------------------

TOPICS = ("shop", "shop.transaction", "__debezium-heartbeat.shop", "shop.public.items", "shop.public.stock",
          "shop.old.stock", "shop.town.dbo.offers", "other.public.brands", "hints")  # fmt: skip


@pytest.mark.parametrize(
    ("table", "topic"),
    [
        ("items", "shop.public.items"),
        ("public.items", "shop.public.items"),
        ("public.stock", "shop.public.stock"),
        ("old.stock", "shop.old.stock"),
        ("offers", "shop.town.dbo.offers"),  # as SQL Server's
        ("dbo.offers", "shop.town.dbo.offers"),
    ],
)
def test_a_table_is_told_by_the_one_topic_that_ends_with_its_name(table, topic):
    assert topic_of(table, TOPICS, "shop") == topic


def test_a_table_with_several_topics_is_an_error_that_names_them():
    with pytest.raises(
        Misconfigured, match=r"several topics tell a table stock: shop.old.stock, shop.public.stock"
    ):
        topic_of("stock", TOPICS, "shop")


@pytest.mark.parametrize("table", ["brands", "transaction", "tems"])
def test_a_table_without_a_topic_is_untold_with_what_to_do_and_the_others_are_told(table):
    found = tables_of([Watched("items", ("id",)), Watched(table, ("id",))], TOPICS, "shop")
    assert list(found.tables) == ["shop.public.items"]
    [said] = found.lacks
    assert said.startswith(f"no topic tells the table {table}; those of the prefix are shop.old.stock,")
    assert "let the connector include the table" in said
    assert "allow Read on it" in said


def test_a_wrong_prefix_is_named():
    found = tables_of([Watched("items", ("id",))], TOPICS, "store")
    assert "no topic at all begins with store." in found.untold["items"]


def test_many_tables_without_a_topic_are_said_in_a_few_sentences():
    found = tables_of([Watched(f"late_{n}", ("id",)) for n in range(100)], TOPICS, "shop")
    assert len(found.untold) == 100
    assert found.lacks[SHOWN:] == (f"no topic tells {100 - SHOWN} more tables",)


def test_an_exact_name_wins_over_another_connector_s_topic_that_ends_alike():
    topics = ("shop.public.items", "shop.eu.public.items")
    assert topic_of("public.items", topics, "shop") == "shop.public.items"


def test_two_spellings_of_a_table_are_one_table_with_the_columns_of_both():
    watched = (Watched("items", ("id",)), Watched("public.items", ("shelf", "id")))
    tables = tables_of(watched, TOPICS, "shop").tables
    assert tables == {"shop.public.items": Table("public.items", ("id", "shelf"))}


def test_a_table_of_sql_server_is_told_with_its_schema_as_the_configuration_names_it():
    [table] = tables_of([Watched("dbo.offers", ("id",))], TOPICS, "shop").tables.values()
    assert table.told == "dbo.offers"


# --- where a turn begins --------------------------------------------------------------------------------

ITEMS, MORE_ITEMS, STOCK = TopicPartition("i", 0), TopicPartition("i", 1), TopicPartition("s", 0)


def offsets(**committed):
    at = {"items": ITEMS, "more": MORE_ITEMS, "stock": STOCK}
    said = {at[name]: offset for name, offset in committed.items()}
    partitions = (ITEMS, MORE_ITEMS, STOCK)
    return Offsets(said, dict.fromkeys(partitions, 10), dict.fromkeys(partitions, 90))


def test_a_turn_goes_on_where_the_group_has_committed():
    found = begin(offsets(items=10, more=90, stock=50), "g")
    assert found.offsets == {ITEMS: 10, MORE_ITEMS: 90, STOCK: 50}
    assert not found.lost


def test_a_topic_without_offsets_begins_at_its_end_and_counts_as_lost():
    found = begin(offsets(stock=50), "g")
    assert found.offsets == {ITEMS: 90, MORE_ITEMS: 90, STOCK: 50}
    assert list(found.lost) == ["i"]
    assert "the group g has no offsets" in found.lost["i"]


def test_a_partition_that_was_added_begins_at_its_first_event_and_nothing_is_lost():
    found = begin(offsets(items=20, stock=50), "g")
    assert found.offsets[MORE_ITEMS] == 10
    assert not found.lost


@pytest.mark.parametrize(("committed", "why"), [(9, "deleted events"), (91, "was made again")])
def test_offsets_outside_of_the_topic_are_lost_changes(committed, why):
    found = begin(offsets(items=20, more=20, stock=committed), "g")
    assert found.offsets[STOCK] == 10
    assert why in found.lost["s"]


# --- the turn -------------------------------------------------------------------------------------------


class Cluster(NamedTuple):
    partitions: int

    def partitions_for_topic(self, topic):
        return set(range(self.partitions)) if topic != "gone" else None


def joined(**members):
    """What each member gets, by its name; a member is its assignor."""
    said = {name: each.metadata(["t"]) for name, each in members.items()}
    given = one_reader.OneReader.assign(Cluster(2), said)
    for name, each in members.items():
        each.on_assignment(given[name])
    return {name: len(each.partitions()) for name, each in given.items()}


def test_one_member_gets_all_partitions_and_keeps_them_whoever_joins():
    first, second = one_reader.assignor(), one_reader.assignor()
    assert joined(m=first) == {"m": 2}
    assert joined(m=first, a=second) == {"m": 2, "a": 0}
    assert joined(a=second) == {"a": 2}


def test_a_member_that_was_forgotten_says_no_longer_that_it_reads():
    frozen, other = one_reader.assignor(), one_reader.assignor()
    joined(a=frozen)
    joined(m=other)
    frozen.give_up()
    assert joined(a=frozen, m=other) == {"a": 0, "m": 2}


def test_who_gets_a_topic_without_partitions_has_no_turn():
    reader, other = one_reader.assignor(), one_reader.assignor()
    said = {"a": ConsumerProtocolMemberMetadata(0, ["gone"], b"")}
    reader.on_assignment(one_reader.OneReader.assign(Cluster(2), said)["a"])
    assert joined(m=other, n=reader) == {"m": 2, "n": 0}


class Consumer:
    """What a turn does with its consumer."""

    def __init__(self):
        self.forgotten = False
        self.at = {}

    def seek(self, at, offset):
        self.at[at] = offset


def turn_of(consumer, said):
    turn = Turn(consumer, give_up=lambda: said.append("given up"))
    turn.assigned([ITEMS, STOCK])
    turn.begin({ITEMS: 3, STOCK: 4}, {})
    return turn


def test_a_turn_goes_on_through_a_rebalance_at_the_same_events():
    consumer, said = Consumer(), []
    turn = turn_of(consumer, said)
    turn.read(ITEMS, 7)
    run(turn.revoked())
    consumer.at.clear()
    turn.assigned([ITEMS, STOCK])
    assert consumer.at == {ITEMS: 7, STOCK: 4}
    assert (turn.over, said) == ("", [])


@pytest.mark.parametrize("given", [[], [ITEMS], [ITEMS, MORE_ITEMS, STOCK]])
def test_a_turn_is_over_when_other_partitions_are_given(given):
    turn = turn_of(Consumer(), [])
    turn.assigned(given)
    assert turn.over


def test_a_turn_is_over_when_the_group_has_forgotten_us_and_it_is_given_up():
    consumer, said = Consumer(), []
    turn = turn_of(consumer, said)
    consumer.forgotten = True
    run(turn.revoked())
    assert "silent for too long" in turn.over
    assert said == ["given up"]


# --- batches --------------------------------------------------------------------------------------------


class Record(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


@pytest.fixture
def batching():
    return Batching({"i": Table("public.items", ("id",))})


def test_a_batch_holds_changes_in_order_and_counts_what_tells_none(batching):
    values = (event("c", None, {"id": 1}), b"avro", b"{}", b"{}", event("u", None, {"id": 2}), None)
    for offset, value in enumerate(values):
        batching.take(ITEMS, Record(offset, key(1), value))
    batch = batching.given("here")
    assert [row["id"] for change in batch.changes for row in change.rows] == [1, 2]
    assert batch.skipped == (
        Skipped("malformed", 1, "i, partition 0, offset 1"),
        Skipped("foreign", 2, "i, partition 0, offset 3"),
    )
    assert not any((batching.given("there").changes, batching.given("there").skipped))


def test_each_batch_says_which_tables_no_topic_tells():
    batching = Batching({"i": Table("public.items", ("id",))}, ("no topic tells the table brands",))
    batching.take(ITEMS, Record(0, key(1), event("c", None, {"id": 1})))
    assert (
        batching.given("here").lacks == batching.given("there").lacks == ("no topic tells the table brands",)
    )


def test_a_truncated_table_is_emptied_and_says_why(batching):
    batching.take(ITEMS, Record(0, None, event("t")))
    assert batching.due
    batch = batching.given("here")
    assert (batch.emptied, batch.why) == (("public.items",), TRUNCATED)
    assert not batching.due


def test_lost_changes_are_due_at_once(batching):
    batching.lost({"i": "the topic was made again"})
    assert batching.due
    assert batching.given("here").why == "the topic was made again"
