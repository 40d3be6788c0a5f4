"""A reader loses no change, whatever fails, and confirms nothing too early. In virtual time, on a feed in memory."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from cacheupdater.errors import Faulty, Unavailable
from cacheupdater.feed_ports import SILENCE_MAX, Skipped
from cacheupdater.feeds.lookups import AGAIN_S as LOOKUP_AGAIN_S
from cacheupdater.feeds.lookups import KEYS_MAX, SHUT_OUT_S, TRIES, Lookups
from cacheupdater.feeds.reader import REST_S, Reader
from cacheupdater.feeds.row_keys import Direct, Lookup, RowKeys
from cacheupdater.feeds.sweep import AGAIN_S
from cacheupdater.pipeline.notices import Notices
from cacheupdater.testing import virtual_loop
from cacheupdater.testing.memory_feed import EVENTS_MAX, MemoryFeed, MemoryLog
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.patterns import Pattern

PRODUCT = Pattern.compile("product:{id:int}")
RULES = [Direct("products", "product", PRODUCT, ("id",)), Lookup("brands", "product", PRODUCT, "id", 0)]


class ListSink:
    """Takes keys into a list. They are safe once the test says so."""

    def __init__(self, *, safe=True):
        self.keys, self.safe, self.full = [], safe, False

    async def put(self, keys):
        while self.full:  # noqa: ASYNC110  the test sets it
            await asyncio.sleep(0.01)
        self.keys += keys
        return lambda: self.safe


class Brands:
    """A statement that finds five products per brand, and fails or finds as told."""

    def __init__(self):
        self.asked, self.fails, self.finds = [], 0, 5

    async def find(self, values):
        self.asked.append(list(values))
        if self.fails:
            self.fails -= 1
            raise Faulty("column brand_id does not exist")
        return [[value * 100 + n] for value in values for n in range(self.finds)]


class Free:
    """A budget that pays for anything."""

    def __init__(self):
        self.rows = 0

    def when(self):
        return 0.0

    def take(self, rows):
        self.rows += rows


class FewKeys:
    """A Redis with these keys."""

    def __init__(self, *keys):
        self.keys, self.scans, self.fails = keys, 0, 0

    async def scan(self, prefix):
        self.scans += 1
        if self.fails:
            self.fails -= 1
            raise Unavailable("Redis does not answer")
        yield [key for key in self.keys if key.startswith(prefix)]


class World:
    def __init__(self, **sink):
        self.log, self.sink, self.brands, self.purse = MemoryLog(), ListSink(**sink), Brands(), Free()
        self.redis, self.observer = FewKeys(b"product:1", b"product:2", b"product:x"), RecordingObserver()
        self.tasks = []

    def start(self):
        clock = asyncio.get_running_loop().time
        reader = Reader(
            "shop",
            MemoryFeed(self.log, ["products", "brands"]),
            RowKeys(RULES),
            sink=self.sink,
            lookups=Lookups({0: self.brands}, lambda namespace, purse=self.purse: purse),
            redis=self.redis,
        )
        self.notices = Notices(clock)
        self.tasks.append(asyncio.ensure_future(reader.run(self.observer, self.notices, lambda: 100.0)))
        return reader

    def change(self, *ids, table="products"):
        with self.log.transaction(committed=99.5) as transaction:
            for each in ids:
                transaction.change(table, {"id": each})

    def truncate(self, table):
        with self.log.transaction() as transaction:
            transaction.truncate(table)

    @property
    def standing(self):
        return {each.event for each in self.notices.standing() if each.ended is None}


def story(test):
    def run():
        async def main():
            world = World()
            try:
                await test(world)
            finally:
                for task in world.tasks:
                    task.cancel()
                await asyncio.gather(*world.tasks, return_exceptions=True)

        virtual_loop.run(main())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@story
async def test_changes_are_put_on_the_queue_and_confirmed(world):
    reader = world.start()
    world.change(1, 2)
    await asyncio.sleep(1.0)
    assert world.sink.keys == [b"product:1", b"product:2"]
    assert not world.log.commits
    assert (reader.told.reads, reader.told.lag) == (True, 0.5)


@story
async def test_nothing_is_confirmed_before_it_is_safe(world):
    world.sink.safe = False
    world.start()
    world.change(1)
    await asyncio.sleep(5.0)
    assert len(world.log.commits) == 1
    world.sink.safe = True
    await asyncio.sleep(1.0)
    assert not world.log.commits


@story
async def test_a_reader_that_dies_leaves_its_changes_to_the_next(world):
    world.sink.safe = False
    world.start()
    world.start()
    world.change(1)
    await asyncio.sleep(1.0)
    assert world.sink.keys == [b"product:1"]
    world.tasks[0].cancel()
    world.sink.safe = True
    await asyncio.sleep(3.0)
    assert world.sink.keys == [b"product:1"] * 2
    assert not world.log.commits


@story
async def test_an_updater_whose_turn_has_ended_does_not_tell_what_waits(world):
    reader = world.start()
    world.sink.safe = False
    world.change(1)
    await asyncio.sleep(10.0)
    assert reader.told.waiting
    world.log.down = True
    world.log.cut()
    await asyncio.sleep(1.0)
    assert reader.told.waiting is None


@story
async def test_a_database_that_is_down_is_a_trouble_and_its_changes_come_later(world):
    world.start()
    world.log.down = True
    world.log.cut()
    await asyncio.sleep(2 * REST_S)
    assert world.standing == {"feed_down"}
    world.log.down = False
    world.change(1)
    await asyncio.sleep(3 * REST_S)
    assert world.sink.keys == [b"product:1"]
    assert world.standing == set()


@story
async def test_a_feed_without_a_word_is_lost(world):
    world.start()
    await asyncio.sleep(1.0)
    feed = world.log.turn

    async def silence():
        await asyncio.sleep(1e6)
        yield

    feed.batches = silence
    world.log.cut()
    await asyncio.sleep(60.0)
    assert "feed_down" in {each.event for each in world.notices.standing()}


@story
async def test_a_reader_that_is_cancelled_while_its_turn_ends_by_an_error_ends_too(world):
    """Otherwise a reload and a stop would wait for the reader for ever."""
    reader = world.start()
    await asyncio.sleep(0.5)

    async def slow_to_end(position):
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            raise

    world.log.turn.confirm = slow_to_end
    world.change(1)
    await asyncio.sleep(0.5)
    world.log.cut()
    await asyncio.sleep(0.1)
    assert reader.told.reads, "the reader waits for its confirmation to end"
    [running] = world.tasks
    running.cancel()
    await asyncio.wait([running], timeout=5.0)
    assert running.cancelled()


@story
async def test_while_the_queue_is_full_the_feed_is_read_no_further(world):
    world.sink.full = True
    world.start()
    for at in range(5000):
        world.change(at)
    await asyncio.sleep(10.0)
    assert (world.sink.keys, len(world.log.commits)) == ([], 5000)
    world.sink.full = False
    await asyncio.sleep(10.0)
    assert sorted({b"product:%d" % n for n in range(5000)} - {*world.sink.keys}) == []
    assert not world.log.commits


# --- one change, many keys -------------------------------------------------------------------------------


@story
async def test_one_change_concerns_many_keys_and_the_budget_pays_for_finding_them(world):
    world.start()
    world.change(1, 2, table="brands")
    await asyncio.sleep(1.0)
    assert world.sink.keys == [b"product:%d" % (brand * 100 + n) for brand in (1, 2) for n in range(5)]
    assert (world.brands.asked, world.purse.rows) == ([[1, 2]], 10)


@story
async def test_a_statement_waits_while_the_budget_is_in_debt(world):
    world.purse.when = lambda: 30.0
    world.start()
    world.change(1, table="brands")
    await asyncio.sleep(29.0)
    assert world.brands.asked == []
    await asyncio.sleep(2.0)
    assert world.brands.asked == [[1]]


@story
async def test_a_statement_runs_once_the_updater_has_a_share_of_the_budget(world):
    """An updater that owns no partition yet has none."""
    world.purse.when = lambda: inf
    world.start()
    world.change(1, table="brands")
    await asyncio.sleep(SHUT_OUT_S / 2)
    assert world.brands.asked == []
    world.purse.when = lambda: 0.0
    await asyncio.sleep(1.0)
    assert world.brands.asked == [[1]]


@story
async def test_an_updater_without_a_share_of_the_budget_leaves_the_feed_to_another(world):
    world.purse.when = lambda: inf
    world.start()
    await asyncio.sleep(0.1)
    world.purse = Free()
    world.start()
    world.change(1, table="brands")
    await asyncio.sleep(2 * SHUT_OUT_S)
    assert len(world.sink.keys) == 5
    assert not world.log.commits


@story
async def test_a_statement_that_fails_for_a_while_is_asked_again(world):
    world.brands.fails = TRIES - 1
    world.start()
    world.change(1, table="brands")
    await asyncio.sleep(LOOKUP_AGAIN_S * TRIES)
    assert len(world.sink.keys) == 5


@pytest.mark.parametrize(("fails", "finds"), [(1000, 5), (0, KEYS_MAX + 1)])
def test_a_statement_that_cannot_tell_stops_nothing(fails, finds):
    """All keys of its namespace in Redis count as changed."""

    @story
    async def told(world):
        world.brands.fails, world.brands.finds = fails, finds
        world.start()
        world.change(1, table="brands")
        world.change(7)
        await asyncio.sleep(LOOKUP_AGAIN_S * TRIES + 1.0)
        assert sorted(world.sink.keys) == [b"product:1", b"product:2", b"product:7"]
        assert world.standing == {"feed_swept"}
        await asyncio.sleep(AGAIN_S)
        assert world.standing == set()
        assert not world.log.commits

    told()


@story
async def test_records_that_tell_no_change_are_counted_and_said_until_changes_come_without_any(world):
    world.start()
    for reason, records in (("malformed", 2), ("foreign", 3), ("malformed", 1)):
        with world.log.transaction() as transaction:
            transaction.skip(Skipped(reason, records, "shop.items, partition 0, offset 7"))
        await asyncio.sleep(1.0)
    counted = {reason: world.observer.total("feed_skipped", label="shop", reason=reason)
               for reason in ("malformed", "foreign")}  # fmt: skip
    assert counted == {"malformed": 3, "foreign": 3}
    assert world.standing == {"feed_skipped"}
    assert "offset 7" in world.notices.standing()[0].text
    assert not world.log.commits, "they come no more"
    world.change(7)
    await asyncio.sleep(1.0)
    assert world.sink.keys == [b"product:7"]
    assert world.standing == set()


@story
async def test_rows_that_tell_no_key_are_said_until_a_minute_has_had_none(world):
    world.start()
    for each in ("a:b", "x"):
        world.change(each, 7)
        await asyncio.sleep(40.0)
        assert world.standing == {"feed_unmapped"}
    [said] = world.notices.standing()
    assert (said.subject, said.text.split(",")[0]) == (
        "shop",
        "1 changed row of products told no key of a namespace",
    )
    assert world.observer.total("feed_unmapped", label="shop") == 2
    assert world.sink.keys == [b"product:7"] * 2
    await asyncio.sleep(25.0)
    assert world.standing == set()


@story
async def test_what_a_feed_cannot_tell_yet_is_said_until_it_can(world):
    world.log.lacks = ("no topic tells the table brands",)
    world.start()
    world.change(1)
    await asyncio.sleep(1.0)
    assert world.sink.keys == [b"product:1"]
    [said] = world.notices.standing()
    assert (said.event, said.subject, said.text) == ("feed_lacks", "shop", *world.log.lacks)
    world.log.lacks = ()
    await asyncio.sleep(SILENCE_MAX)
    assert world.standing == set()


@story
async def test_what_is_wrong_with_a_feed_is_said_by_whoever_has_the_turn(world):
    world.log.lacks = ("no topic tells the table brands",)
    world.start()
    with world.log.transaction() as transaction:
        transaction.skip(Skipped("foreign", 1, "shop.items, partition 0, offset 7"))
    await asyncio.sleep(SILENCE_MAX)
    assert world.standing == {"feed_lacks", "feed_skipped"}
    world.tasks[0].cancel()
    await asyncio.sleep(1.0)
    assert world.standing == set()


@story
async def test_others_have_their_turn_between_two_batches(world):
    """A feed that has much to tell gives batches for which nobody must wait."""
    turns, seen, all_seen = 0, [], asyncio.Event()

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def put(_keys):
        seen.append(turns)
        if len(seen) == 5:
            all_seen.set()
        return lambda: True

    world.sink.put = put
    for first in range(0, 5 * EVENTS_MAX, EVENTS_MAX):
        world.change(*range(first, first + EVENTS_MAX))
    world.tasks.append(asyncio.ensure_future(other()))
    world.start()
    await all_seen.wait()
    assert len(set(seen)) == 5


# --- any row may have changed ----------------------------------------------------------------------------


@story
async def test_a_truncated_table_concerns_all_its_keys_in_redis_now_and_when_no_older_load_can_write(world):
    world.start()
    world.truncate("products")
    await asyncio.sleep(1.0)
    assert world.sink.keys == [b"product:1", b"product:2"]
    assert len(world.log.commits) == 1, "a reader that dies now must sweep again"
    world.redis.keys = (b"product:3",)
    await asyncio.sleep(AGAIN_S + 1.0)
    assert world.sink.keys[2:] == [b"product:3"]
    assert not world.log.commits


@story
async def test_a_sweep_is_a_trouble_until_its_second_time_is_on_the_queue(world):
    world.start()
    world.truncate("products")
    await asyncio.sleep(AGAIN_S - 1.0)
    assert world.standing == {"feed_swept"}
    world.sink.full = True
    await asyncio.sleep(10.0)
    assert world.standing == {"feed_swept"}
    world.sink.full = False
    await asyncio.sleep(1.0)
    assert world.standing == set()


@story
async def test_a_namespace_that_is_swept_anew_meanwhile_is_a_trouble_until_the_last_sweep(world):
    world.start()
    for _ in range(2):
        world.truncate("products")
        await asyncio.sleep(AGAIN_S / 2)
    await asyncio.sleep(1.0)
    assert world.standing == {"feed_swept"}
    await asyncio.sleep(AGAIN_S / 2)
    assert world.standing == set()


@story
async def test_a_sweep_is_no_trouble_of_an_updater_whose_turn_has_ended(world):
    """Another one may have the turn, and then sweeps anew."""
    world.start()
    world.truncate("products")
    await asyncio.sleep(2.0)
    assert world.standing == {"feed_swept"}
    world.log.down = True
    world.log.cut()
    await asyncio.sleep(1.0)
    assert world.standing == {"feed_down"}


@story
async def test_a_sweep_that_redis_does_not_answer_is_no_trouble_of_an_updater_whose_turn_has_ended(world):
    world.redis.fails = 1
    world.start()
    world.truncate("products")
    await asyncio.sleep(REST_S / 2)
    world.log.down = True
    await asyncio.sleep(REST_S)
    assert world.standing == {"feed_down"}


@story
async def test_lost_changes_concern_all_keys(world):
    world.start()
    world.log.lose("the replication slot was dropped")
    await asyncio.sleep(3.0)
    assert world.sink.keys == [b"product:1", b"product:2"]
    assert "the replication slot was dropped" in next(iter(world.notices.standing())).text


@story
async def test_a_sweep_that_redis_does_not_answer_is_made_again(world):
    world.redis.fails = 1
    world.start()
    world.truncate("products")
    await asyncio.sleep(5.0)
    assert world.sink.keys == [b"product:1", b"product:2"]


@story
async def test_a_second_sweep_that_fails_begins_anew(world):
    world.start()
    world.truncate("products")
    await asyncio.sleep(1.0)
    world.redis.fails = 1
    await asyncio.sleep(AGAIN_S + 2.0)
    assert len(world.log.commits) == 1
    await asyncio.sleep(AGAIN_S + 2.0)
    assert not world.log.commits
    assert world.standing == set()
