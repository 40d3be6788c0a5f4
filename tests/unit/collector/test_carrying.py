"""How a drain carries hints from an old queue to a new one, in virtual time: at least once, in bounded memory, to its end."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hints.collecting import BEGAN_MS, Queue

from cacheupdater.adapters.queue_depot import DepotQueue
from cacheupdater.collector import carrying
from cacheupdater.collector.carrying import HAND_OVER_S, REST_S, Carrying
from cacheupdater.collector.sending import Sending
from cacheupdater.core.draining import HELD_KEYS, QUIET_S, WAVE_KEYS
from cacheupdater.core.hints import Kind
from cacheupdater.errors import Misconfigured, first_error
from cacheupdater.pipeline.notices import Notices
from cacheupdater.testing import virtual_loop
from cacheupdater.testing.memory_depot import MemoryDepot, MemoryTables
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.outbox import KINDS
from cacheupdater_client.protocol.wire import (
    CHANGE,
    MISS,
    SET,
    TOUCH,
    Hello,
    encode_pack,
    partition_of,
)

PARTITIONS = 6
KEYS = [b"k%d" % each for each in range(40)]


class Old:
    """The tables of an old queue, and its members."""

    def __init__(self):
        clock = asyncio.get_running_loop().time
        self.tables = MemoryTables(PARTITIONS, clock)
        self.depots = []
        self.session = 5.0

    def put(self, kind, *keys, ms=0, tokens=()):
        packs = [
            (partition_of(key, PARTITIONS), encode_pack(kind, BEGAN_MS + ms, [key], tokens=tokens))
            for key in keys
        ]
        self.tables.put(packs)

    @property
    def left(self):
        return sum(len(each.packs) for each in (*self.tables.shelves, *self.tables.urgent))

    async def member(self, name, observer, notices):
        self.depots.append(MemoryDepot(self.tables))
        queue = DepotQueue(
            self.depots[-1], session=self.session, member=name, observer=observer, notices=notices
        )
        await queue.start()
        return queue


class Drain:
    """One process that drains."""

    def __init__(self, old, name="drain", hello=None):
        self._old, self._name = old, name
        self.observer = RecordingObserver()
        self.notices = Notices(lambda: asyncio.get_running_loop().time())
        self.new = Queue(hello or Hello(4, []))
        self.stop = asyncio.Event()
        self.turn_s = 0.001  # as long as a turn beside the loop may take

    async def start(self):
        self.queue = await self._old.member(self._name, self.observer, self.notices)
        told = {"observer": self.observer, "notices": self.notices}
        self.sending = Sending(self.new, self._aside, name="the new queue", **told)
        self.carrying = Carrying(self.queue, self.sending, **told)
        self.running = asyncio.ensure_future(self.carrying.run(self.stop))
        return self

    async def _aside(self, work):
        await asyncio.sleep(self.turn_s)
        return work()

    @property
    def taken(self):
        """Keys that the new queue has acknowledged, by kind."""
        return {
            kind: {key for pack in self.new.kept if pack.kind == kind for key in pack.keys} for kind in KINDS
        }

    async def kill(self):
        """As kill -9 would: it says nothing to anybody."""
        self._old.depots[-1].down = "before"
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


def story(told):
    """Runs a story with an old queue in virtual time."""

    def test(caplog):
        async def run():
            old = Old()
            old.log = caplog
            async with asyncio.timeout(3600):
                await told(old)

        caplog.set_level("INFO")
        virtual_loop.run(run())

    test.__name__, test.__doc__ = told.__name__, told.__doc__
    return test


async def sent_and_not_acknowledged(old):
    """A drain whose new queue has been sent a change of each key, and says nothing."""
    drain = Drain(old)
    drain.new.mute = True
    await drain.start()
    old.put(CHANGE, *KEYS)
    await asyncio.sleep(1)
    return drain


@story
async def test_everything_arrives_in_the_partitions_of_the_new_queue_with_its_kind_and_its_age(old):
    old.put(TOUCH, *KEYS[:20])
    old.put(MISS, *KEYS[20:29], ms=5000)
    old.put(MISS, KEYS[29], ms=5000, tokens=[77])
    old.put(CHANGE, *KEYS[30:], ms=90_000)
    old.put(SET, KEYS[30], ms=90_000)
    drain = await Drain(old).start()
    assert await drain.running
    assert drain.taken == {TOUCH: {*KEYS[:20]}, MISS: {*KEYS[20:30]}, CHANGE: {*KEYS[30:]}, SET: {KEYS[30]}}
    ages = {
        pack.kind: {each.emitted_ms for each in drain.new.kept if each.kind == pack.kind}
        for pack in drain.new.kept
    }
    assert ages == {
        TOUCH: {BEGAN_MS},
        MISS: {BEGAN_MS + 5000},
        CHANGE: {BEGAN_MS + 90_000},
        SET: {BEGAN_MS + 90_000},
    }
    assert [pack.tokens for pack in drain.new.kept if KEYS[29] in pack.keys] == [[77]]
    for pack in drain.new.kept:
        assert len({partition_of(key, 4) for key in pack.keys}) == 1
    assert old.left == 0
    assert drain.observer.total("drained") == len(KEYS) + 1
    assert drain.sending.drained == {Kind.TOUCH: 20, Kind.MISS: 10, Kind.CHANGE: 11}


@story
async def test_the_drain_goes_on_while_old_clients_write_and_ends_a_minute_after_the_last_hint(old):
    drain = await Drain(old).start()
    for number in range(10):
        await asyncio.sleep(QUIET_S - 1)
        assert not drain.running.done()
        old.put(CHANGE, KEYS[number])
    began = asyncio.get_running_loop().time()
    assert await drain.running
    assert QUIET_S <= asyncio.get_running_loop().time() - began < QUIET_S + 5
    assert drain.taken[CHANGE] == {*KEYS[:10]}
    assert old.tables.sessions == {}


@story
async def test_nothing_is_committed_that_the_new_queue_has_not_acknowledged(old):
    drain = await sent_and_not_acknowledged(old)
    await asyncio.sleep(QUIET_S + 10)
    assert drain.new.got, "it was sent"
    assert old.left == len(KEYS)
    assert not drain.running.done()
    await drain.kill()
    other = await Drain(old, "other").start()
    assert await other.running
    assert other.taken[CHANGE] == {*KEYS}


@story
async def test_while_the_new_queue_is_away_nothing_is_lost_and_little_is_read(old):
    drain = Drain(old)
    drain.new.away = True
    for number in range(200):
        keys = [b"%d:%d" % (number, each) for each in range(1000)]
        old.tables.put([(number % PARTITIONS, encode_pack(CHANGE, BEGAN_MS, keys))])
    await drain.start()
    await asyncio.sleep(10 * QUIET_S)
    assert old.left == 200
    assert drain.carrying._draining.waiting <= HELD_KEYS + carrying.FETCH_PACKS * 1000
    assert [each.event for each in drain.notices.standing()] == ["queue_missing"]
    drain.new.away = False
    assert await drain.running
    assert len(drain.taken[CHANGE]) == 200_000
    assert old.left == 0
    assert max(len(pack.keys) for pack in drain.new.kept) <= WAVE_KEYS


@story
async def test_a_new_queue_that_goes_away_is_noticed_though_nothing_waits_for_it(old):
    drain = await Drain(old).start()
    await asyncio.sleep(10)
    drain.new.away = True
    await asyncio.sleep(2 * REST_S)
    assert [each.event for each in drain.notices.standing()] == ["queue_missing"]
    drain.new.away = False
    assert await drain.running


@story
async def test_an_old_queue_that_is_away_is_not_taken_for_an_empty_one(old):
    drain = await Drain(old).start()
    await asyncio.sleep(10)
    old.depots[0].down = "before"
    await asyncio.sleep(10 * QUIET_S)
    assert not drain.running.done()
    old.put(CHANGE, *KEYS)
    old.depots[0].down = ""
    assert await drain.running
    assert drain.taken[CHANGE] == {*KEYS}


@story
async def test_a_trouble_that_costs_no_partition_puts_the_end_off_too(old):
    """A consumer of Kafka keeps its partitions while no broker answers."""
    drain = await Drain(old).start()
    await asyncio.sleep(10)
    drain.notices.trouble("fetch_failed", "3", "no broker answers")
    await asyncio.sleep(3 * QUIET_S)
    assert not drain.running.done()
    drain.notices.over("fetch_failed", "3")
    assert await drain.running


@story
async def test_a_drain_that_was_frozen_reads_before_it_ends(old):
    """The operating system stops it, or the machine of a container pauses: the clock goes on, and no packs are read."""
    old.session = 10 * QUIET_S  # so the partitions are still its own
    drain = await Drain(old).start()
    await asyncio.sleep(10)
    loop = asyncio.get_running_loop()
    old.put(CHANGE, *KEYS)
    loop._now += 2 * QUIET_S  # all timers are due at once
    assert await drain.running
    assert old.left == 0
    assert drain.taken[CHANGE] == {*KEYS}


@story
async def test_a_drain_that_was_full_when_it_lost_its_partitions_reads_on_afterwards(old):
    """Here no wave is under way, as a turn without hints takes long: a broker that does not answer is being connected."""
    drain = await Drain(old).start()
    await asyncio.sleep(10)
    drain.turn_s = 20.0
    await asyncio.sleep(1)
    for number in range(200):
        keys = [b"%d:%d" % (number, each) for each in range(1000)]
        old.tables.put([(number % PARTITIONS, encode_pack(CHANGE, BEGAN_MS, keys))])
    await asyncio.sleep(2)
    assert not drain.carrying._draining.has_room
    old.depots[0].down = "before"
    await asyncio.sleep(9)  # longer than a session
    assert drain.carrying._draining.owned == 0
    old.depots[0].down, drain.turn_s = "", 0.001
    assert await drain.running
    assert old.left == 0
    assert len(drain.taken[CHANGE]) == 200_000


@story
async def test_while_another_member_owns_partitions_the_drain_does_not_end(old):
    """An updater may be stopped later and leave hints behind. Once it has left, its partitions are the drain's."""
    drain = await Drain(old).start()
    updater = await old.member("updater", RecordingObserver(), Notices(lambda: 0.0))
    following = asyncio.ensure_future(_follow(updater))
    await asyncio.sleep(3 * QUIET_S)
    assert 0 < drain.carrying._draining.owned < PARTITIONS
    assert not drain.running.done()
    [said] = [each for each in old.log.messages if "nothing has come for 60 s" in each]
    assert "the drain goes on until they have left" in said
    old.put(CHANGE, *KEYS)  # the updater reads its share and finishes nothing
    await asyncio.sleep(1)
    await updater.close()
    await following
    began = asyncio.get_running_loop().time()
    assert await drain.running
    assert asyncio.get_running_loop().time() - began >= QUIET_S
    assert drain.taken[CHANGE] == {*KEYS}


async def _follow(queue):
    async for change in queue.assignments():
        change.settled()


@story
async def test_two_drains_share_the_partitions_and_one_that_is_stopped_hands_over_at_once(old):
    first = await Drain(old, "first").start()
    second = await Drain(old, "second").start()
    await asyncio.sleep(10)
    old.put(CHANGE, *KEYS)
    await asyncio.sleep(5)
    assert first.taken[CHANGE] | second.taken[CHANGE] == {*KEYS}
    assert first.taken[CHANGE]
    assert second.taken[CHANGE]
    first.stop.set()
    stopped = asyncio.get_running_loop().time()
    assert await first.running is False
    assert asyncio.get_running_loop().time() - stopped < 1
    await asyncio.sleep(1)
    assert second.carrying._draining.owned == PARTITIONS
    assert await second.running


@story
async def test_a_stop_waits_for_the_wave_under_way_and_commits_it(old):
    drain = await sent_and_not_acknowledged(old)
    drain.stop.set()
    await asyncio.sleep(1)
    drain.new.mute = False
    assert await drain.running is False
    assert old.left == 0
    assert drain.taken[CHANGE] == {*KEYS}


@story
async def test_a_stop_does_not_wait_long_for_a_queue_that_is_away(old):
    drain = await sent_and_not_acknowledged(old)
    drain.stop.set()
    began = asyncio.get_running_loop().time()
    assert await drain.running is False
    assert asyncio.get_running_loop().time() - began < HAND_OVER_S + 1
    assert old.left == len(KEYS)


@story
async def test_packs_that_nobody_can_read_are_counted_and_passed(old):
    old.tables.put([(0, b"\xff"), (1, encode_pack(CHANGE, BEGAN_MS, [b"a"])), (1, b"")])
    drain = await Drain(old).start()
    assert await drain.running
    assert drain.taken[CHANGE] == {b"a"}
    assert drain.observer.total("intake_rejected") == 2
    assert old.left == 0


@story
async def test_a_pack_that_the_new_queue_refuses_for_good_ends_the_drain_and_stays(old):
    drain = await Drain(old).start()
    drain.new.turn = partial(_refusing, drain.new.turn)
    old.put(CHANGE, KEYS[0])
    with pytest.raises(BaseExceptionGroup) as raised:
        await drain.running
    error = first_error(raised.value)
    assert isinstance(error, Misconfigured)
    assert "stay on the old queue" in str(error)
    assert drain.observer.total("drained") == 0
    assert old.left == 1
    assert old.tables.sessions == {}


def _refusing(turn, outbox, now, now_ms):
    turn(outbox, now, now_ms)
    if outbox.under_way:
        outbox.refuse()
    return False


@story
async def test_hints_that_an_updater_behind_a_socket_does_not_declare_are_dropped_with_a_count(old):
    drain = await Drain(old, hello=Hello(4, [b"k1"])).start()
    old.put(CHANGE, *KEYS)
    assert await drain.running
    assert drain.taken[CHANGE] == {key for key in KEYS if key.startswith(b"k1")}
    assert drain.observer.total("dropped") == len(KEYS) - 11
    assert drain.observer.total("drained") == 11
    assert old.left == 0


@story
async def test_another_number_of_partitions_in_the_middle_of_a_wave_costs_neither_hints_nor_ages(old):
    drain = await sent_and_not_acknowledged(old)
    drain.new.close()
    drain.new.said, drain.new.mute = Hello(9, []), False
    assert await drain.running
    assert drain.taken[CHANGE] == {*KEYS}
    assert {pack.emitted_ms for pack in drain.new.kept} == {BEGAN_MS}
    for pack in drain.new.kept:
        assert len({partition_of(key, 9) for key in pack.keys}) == 1


@story
async def test_a_commit_that_the_old_queue_does_not_take_is_tried_again(old):
    drain = await Drain(old).start()
    await asyncio.sleep(3)
    old.put(CHANGE, *KEYS)
    while not drain.taken[CHANGE]:  # noqa: ASYNC110  the very moment before the commit
        await asyncio.sleep(0.001)
    old.depots[0].down = "before"
    await asyncio.sleep(2)  # shorter than a session
    assert old.left > 0
    old.depots[0].down = ""
    assert await drain.running
    assert old.left == 0
