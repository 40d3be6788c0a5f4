"""One owned partition: whatever a port does, the engine hears of it, the other tasks continue, and the partition ends in time."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest
from stories.engine import namespace, plenty
from stories.shell import GARBAGE, Rows, Shell, Turns, in_virtual_time

from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.policy import Fixed
from cacheupdater.core.removals import AGAIN, REFUSALS_MAX
from cacheupdater.errors import Faulty, Forbidden, Unavailable
from cacheupdater.pipeline.partition import EFFORT, FETCH_PACKS, FETCH_PACKS_MOST, OTHERS
from cacheupdater.testing import virtual_loop
from cacheupdater_client.protocol import wire


@in_virtual_time
async def test_a_hint_becomes_a_value_and_its_pack_is_committed():
    shell = Shell()
    shell.tables["p"].rows[1,] = {"name": "one"}
    async with shell.partition():
        shell.queue.touch(b"p:1")
        await asyncio.sleep(1.0)
        assert shell.redis.get(b"p:1") == b'{"name":"one"}'
        assert shell.queue.commits == [(0, 1, 1)]


@in_virtual_time
async def test_a_message_that_is_no_pack_holds_up_nobody():
    shell = Shell()
    shell.tables["p"].rows[1,] = "one"
    async with shell.partition():
        assert shell.queue.offer(0, GARBAGE)
        shell.queue.touch(b"p:1")
        assert shell.queue.offer(0, GARBAGE)
        await asyncio.sleep(1.0)
        assert shell.redis.get(b"p:1") == b'"one"'
        assert shell.queue.backlog(0) == 0
        assert shell.observer.total("intake_rejected") == 2


@in_virtual_time
async def test_nothing_is_committed_twice_backwards_or_before_it_is_done():
    shell = Shell(namespace("slow"), namespace("fast"))
    shell.tables["slow"].took = 1.0
    async with shell.partition():
        shell.queue.touch(b"fast:1")
        shell.queue.touch(b"slow:1")
        shell.queue.touch(b"fast:2")
        await asyncio.sleep(0.9)
        assert shell.queue.commits == [(0, 1, 1)]  # fast:2 is finished, but behind slow:1
        await asyncio.sleep(0.9)
    assert shell.queue.commits == [(0, 1, 1), (0, 1, 3)]


@in_virtual_time
async def test_a_value_that_cannot_be_encoded_fails_its_own_key_only():
    shell = Shell(max_attempts=1)
    shell.tables["p"].rows = {(1,): "one", (2,): object(), (3,): "three"}
    async with shell.partition() as partition:
        shell.queue.touch(b"p:1", b"p:2", b"p:3")
        await asyncio.sleep(1.0)
        assert [shell.redis.get(b"p:%d" % n) for n in (1, 2, 3)] == [b'"one"', None, b'"three"']
        assert list(partition.engine.quarantine.keys) == [b"p:2"]
        assert shell.queue.backlog(0) == 0


@in_virtual_time
async def test_rows_that_are_suddenly_absent_by_the_dozen_are_left():
    shell = Shell()
    keys = [b"p:%d" % n for n in range(30)]
    for key in keys:
        shell.redis.set(key, b'"old"')
    shell.tables["p"].rows[0,] = "new"
    async with shell.partition():
        shell.queue.touch(*keys)
        await asyncio.sleep(1.0)
        assert [shell.redis.get(key) for key in keys] == [b'"new"'] + [b'"old"'] * 29
        shell.tables["p"].rows = {(n,): "back" for n in range(30)}
        await asyncio.sleep(4.1)  # the hold is over
        shell.queue.touch(*keys)
        await asyncio.sleep(1.0)
        assert {shell.redis.get(key) for key in keys[1:]} == {b'"back"'}


@in_virtual_time
async def test_an_emptied_table_empties_no_cache_whose_keys_are_loaded_every_second():
    keys = [b"p:%d" % n for n in range(100)]
    shell = Shell(namespace(every=1.0))
    shell.tables["p"].rows = {(n,): {"id": n} for n in range(100)}
    async with shell.partition():
        for second in range(40):
            if second == 20:
                shell.tables["p"].rows = {}
            for key in keys:  # packs of one key, so that units are small too
                shell.queue.touch(key)
            await asyncio.sleep(1.0)
        left = [key for key in keys if shell.redis.get(key)]
    assert len(left) >= 50
    assert "braked" in {each.event for each in shell.notices.standing()}


@in_virtual_time
async def test_ordinary_deletes_among_many_small_units_are_no_mass_deletion(caplog):
    shell = Shell()
    live, deleted = ([b"p:%d" % n for n in range(first, first + 300)] for first in (0, 1_000))
    shell.tables["p"].rows = {(n,): "new" for n in range(300)}
    for key in deleted[:91]:
        shell.redis.set(key, b'"old"')
    async with shell.partition() as partition:
        for n in range(91):
            shell.queue.touch(*live[3 * n : 3 * n + 3])
            await asyncio.sleep(0.03)  # another unit
            shell.queue.touch(deleted[n])
            await asyncio.sleep(0.03)
        await asyncio.sleep(1.0)
        assert [key for key in deleted[:91] if shell.redis.get(key)] == []
        assert not partition.engine.quarantine.keys
    assert "suddenly absent" not in caplog.text


@in_virtual_time
async def test_the_brake_is_told_of_when_it_begins_and_when_it_is_over(caplog):
    caplog.set_level("INFO")
    shell = Shell()
    keys = [b"p:%d" % n for n in range(60)]
    shell.tables["p"].rows = {(n,): "there" for n in range(60)}
    async with shell.partition():
        shell.queue.touch(*keys)
        await asyncio.sleep(30.0)
        shell.tables["p"].rows = {}
        shell.queue.touch(*keys)
        await asyncio.sleep(1.0)
        shell.tables["p"].rows = {(n,): "back" for n in range(60)}
        for _ in range(6):
            await asyncio.sleep(5.1)
            shell.queue.touch(*keys)
        await asyncio.sleep(1.0)
    told = [line for line in caplog.messages if line.startswith("braked p")]
    assert told[0] == "braked p: 60 of 60 rows are suddenly absent; none of them was deleted"
    assert len(told) == 2
    assert "over after" in told[1]


@in_virtual_time
async def test_touches_of_keys_that_nobody_ever_wrote_do_not_keep_what_was_deleted(caplog):
    shell = Shell()
    shell.tables["p"].rows = {(n,): "there" for n in range(10)}
    deleted = [b"p:%d" % n for n in range(10)]
    async with shell.partition():
        shell.queue.touch(*deleted)
        await asyncio.sleep(30.0)
        assert all(map(shell.redis.get, deleted))
        shell.tables["p"].rows = {}
        shell.queue.touch(*(b"p:%d" % n for n in range(1000, 1150)))
        await asyncio.sleep(1.0)
        shell.queue.touch(*deleted)
        await asyncio.sleep(1.0)
        assert not any(map(shell.redis.get, deleted))
    assert "suddenly absent" not in caplog.text


@in_virtual_time
async def test_values_that_cannot_be_encoded_are_told_once(caplog):
    shell = Shell()
    shell.tables["p"].rows = {(n,): object() for n in range(5)}
    async with shell.partition():
        for n in range(5):
            shell.queue.touch(b"p:%d" % n)
            await asyncio.sleep(0.1)
        assert sum("cannot be written" in line for line in caplog.messages) == 1


@in_virtual_time
async def test_keys_of_a_node_that_is_away_are_told_of_and_land_when_it_is_back(caplog):
    shell = Shell()
    shell.tables["p"].rows = {(n,): "new" for n in range(3)}
    shell.writer.away = {b"p:1"}
    async with shell.partition() as partition:
        shell.queue.touch(*(b"p:%d" % n for n in range(3)))
        await asyncio.sleep(20.0)
        assert [shell.redis.get(b"p:%d" % n) for n in range(3)] == [b'"new"', None, b'"new"']
        [told, *_] = [line for line in caplog.messages if "cannot be written now" in line]
        assert told.endswith("127.0.0.1:7001 failed a moment ago")
        assert len(partition.engine.quarantine) == 0
        shell.writer.away.clear()
        await asyncio.sleep(2.1)
        assert shell.redis.get(b"p:1") == b'"new"'


# --- loads that fail ------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_load_that_raises_something_unexpected_is_reported_to_the_engine_and_the_others_go_on():
    shell = Shell(namespace("bad", source=Source("db", plenty(), concurrency=1)), namespace("good"))
    shell.tables["bad"] = Rows({(n,): "fine" for n in range(9)}, faults={(4,): KeyError("no such column")})
    shell.tables["good"].rows[1,] = "good"
    async with shell.partition() as partition:
        shell.queue.touch(*(b"bad:%d" % n for n in range(9)))
        shell.queue.touch(b"good:1")
        await asyncio.sleep(20.0)
        assert shell.redis.get(b"good:1") == b'"good"'
        written = [n for n in range(9) if shell.redis.get(b"bad:%d" % n) == b'"fine"']
        assert written == [0, 1, 2, 3, 5, 6, 7, 8]  # the unit was cut down to the key that is to blame
        assert partition.engine.quarantine.keys[b"bad:4"].error == "KeyError('no such column')"
        assert shell.namespaces[0].source.slots.free == 1
        assert shell.queue.backlog(0) == 0


@in_virtual_time
async def test_a_source_that_is_down_is_tried_until_it_is_back_and_no_key_is_blamed():
    shell = Shell()
    shell.tables["p"].error = Unavailable("no connection")
    async with shell.partition() as partition:
        shell.queue.touch(b"p:1")
        await asyncio.sleep(20.0)
        assert shell.queue.commits == []
        shell.tables["p"].error, shell.tables["p"].rows = None, {(1,): "back"}
        await asyncio.sleep(2.5)
        assert shell.redis.get(b"p:1") == b'"back"'
        assert not partition.engine.quarantine
        assert (
            shell.observer.total("errors", label="p", reason="unavailable")
            == len(shell.tables["p"].asked) - 1
        )
        assert shell.queue.backlog(0) == 0


@in_virtual_time
async def test_an_invalidation_that_redis_does_not_acknowledge_is_asked_for_again():
    """The change cannot be served, so the old value must go: until then its pack is not done."""
    shell = Shell(max_attempts=1)
    shell.redis.set(b"p:1", b'"old"')
    shell.tables["p"].error = Faulty("division by zero")
    shell.writer.invalidation_errors = [Unavailable("connection refused"), Unavailable("connection refused")]
    async with shell.partition():
        shell.queue.change(b"p:1")
        await asyncio.sleep(0.9)
        assert (shell.redis.get(b"p:1"), shell.queue.commits) == (b'"old"', [])
        await asyncio.sleep(0.3)
        assert (shell.redis.get(b"p:1"), shell.queue.commits) == (None, [(0, 1, 1)])
        assert shell.observer.total("invalidations", label="p") == 1


@in_virtual_time
async def test_a_removal_that_redis_refuses_for_ever_pins_no_cursor():
    """As where the user has no right to the key. Others that are removed at the same time are not kept waiting."""
    shell = Shell(max_attempts=1)
    for n in range(4):
        shell.redis.set(b"p:%d" % n, b'"old"')
    shell.tables["p"].error = Faulty("division by zero")
    shell.writer.refuses = b"p:2"
    async with shell.partition():
        shell.queue.change(*(b"p:%d" % n for n in range(4)))
        await asyncio.sleep(1.5)
        assert [shell.redis.get(b"p:%d" % n) for n in range(4)] == [None, None, b'"old"', None]
        assert shell.queue.commits == []
        await asyncio.sleep(REFUSALS_MAX * AGAIN)
        assert shell.queue.commits == [(0, 1, 1)]
        assert shell.observer.total("invalidations", label="p") == 3
        assert shell.observer.total("dropped", label="p", reason="removal_refused") == 1
        [notice] = [each for each in shell.notices.standing() if each.event == "removal_refused"]
        assert (notice.subject, notice.keys) == ("p", 1)
        assert "NOPERM" in notice.text
        assert "p:2" not in notice.text


@in_virtual_time
async def test_removals_that_the_user_has_no_right_to_pin_no_cursor():
    """It may not run the command, whatever the key."""
    shell = Shell(max_attempts=1)
    shell.redis.set(b"p:1", b'"old"')
    shell.tables["p"].error = Faulty("division by zero")
    refusal = Forbidden("Redis refuses for now: NOPERM this user has no permissions to run 'evalsha'")
    shell.writer.invalidation_errors = [refusal] * 1_000
    async with shell.partition():
        shell.queue.change(b"p:1")
        await asyncio.sleep((REFUSALS_MAX - 1) * AGAIN - 0.1)
        assert shell.queue.commits == []
        await asyncio.sleep(2.0)
        assert shell.queue.commits == [(0, 1, 1)]
        assert shell.observer.total("dropped", label="p", reason="removal_refused") == 1
        [notice] = [each for each in shell.notices.standing() if each.event == "removal_refused"]
        assert "NOPERM" in notice.text


@in_virtual_time
async def test_a_hint_that_stays_open_keeps_nobody_elses_packs_on_the_queue():
    """Its source is down. The packs behind it are finished and forgotten, so the listeners always find room."""
    stuck = namespace("q", source=Source("away", plenty(), concurrency=1))
    shell = Shell(namespace(every=0.0), stuck)
    shell.tables["q"].error = Unavailable("connection refused")
    shell.tables["p"].rows = {(n,): "row" for n in range(100)}
    async with shell.partition() as partition:
        shell.queue.change(b"q:1")
        for turn in range(200):
            for n in range(20):
                shell.queue.touch(b"p:%d" % ((turn + n) % 100))
            await asyncio.sleep(0.1)
            assert shell.queue.backlog(0) <= 1 + 4 * 20
        assert partition.engine.cursor.done == 0
        assert 18.5 < shell.observer.levels["oldest_open_seconds", "0"] <= 20.5
        await asyncio.sleep(12.0)
        assert shell.queue.backlog(0) == 0
        assert shell.observer.levels["oldest_open_seconds", "0"] == 0.0


# --- the queue ------------------------------------------------------------------------------------------


@in_virtual_time
async def test_reading_pauses_while_the_engine_is_full_and_goes_on_after_without_spinning(monkeypatch):
    monkeypatch.setattr(virtual_loop, "TURNS_MAX", 200)  # at one moment
    shell = Shell(namespace(source=Source("db", plenty(), concurrency=1)), pending=2, head_timeout=60.0)
    shell.tables["p"] = Rows({(n,): "row" for n in range(100)}, took=10.0)
    async with shell.partition() as partition:
        for n in range(100):
            shell.queue.touch(b"p:%d" % n)
        turns = Turns()
        await asyncio.sleep(9.9)
        assert partition.engine.cursor.scan == FETCH_PACKS  # one turn of reading, and no more
        assert turns.count < 1000
        shell.tables["p"].took = 0.0
        await asyncio.sleep(2.0)
        assert shell.queue.backlog(0) == 0
        assert turns.count < 2000


@in_virtual_time
async def test_a_peer_that_has_too_much_open_is_not_read_while_another_is_and_is_read_on_later(monkeypatch):
    monkeypatch.setattr(virtual_loop, "TURNS_MAX", 200)  # at one moment
    shell = Shell(
        namespace("slow", source=Source("slow", plenty(), concurrency=1)),
        namespace("fast"),
        pending=200,
        head_timeout=60.0,
    )
    shell.tables["slow"] = Rows({(n,): "row" for n in range(400)}, took=10.0)
    shell.tables["fast"].rows[1,] = "one"
    async with shell.partition() as partition:
        for n in range(40):
            keys = [b"slow:%d" % (10 * n + each) for each in range(10)]
            assert shell.queue.offer(0, wire.encode_pack(Kind.MISS, 0, keys), 1)
        await asyncio.sleep(1.0)
        assert set(partition.engine.held) == {1}
        assert shell.queue.offer(0, wire.encode_pack(Kind.MISS, 0, [b"fast:1"]), 2)
        await asyncio.sleep(0.5)
        assert shell.redis.get(b"fast:1") == b'"one"'
        assert shell.queue.backlog(0) > 10
        shell.tables["slow"].took = 0.0
        await asyncio.sleep(15.0)
        assert shell.queue.backlog(0) == 0


@pytest.mark.parametrize(("hints", "second"), [(1, FETCH_PACKS_MOST), (500, 14), (1000, 7)])
@in_virtual_time
async def test_more_packs_are_fetched_where_they_were_small_and_never_more_hints(hints, second):
    shell = Shell(namespace(max_backlog=100_000), pending=FETCH_PACKS * hints + 1, head_timeout=60.0)
    shell.tables["p"].took = 50.0
    for n in range(50):
        keys = [b"p:%d" % (10**9 + n * hints + k) for k in range(hints)]
        assert shell.queue.offer(0, wire.encode_pack(Kind.TOUCH, 1, keys))
    async with shell.partition() as partition:
        await asyncio.sleep(1.0)
        assert partition.engine.cursor.scan == FETCH_PACKS + second  # then the engine is full


class Meeting(Fixed):
    """Meets keys as the policy `price` does, each once, and wants none of them loaded."""

    def __init__(self, known=()):
        self.known = set(known)
        self.met = len(self.known)
        self.packs_by_turn = Counter()

    def on_hints(self, keys, counts, now):
        self.known.update(keys)
        self.met = len(self.known)
        self.packs_by_turn[self.turns.count] += 1
        return []


def pack_of(number, hints):
    return [b"p:%d" % (10**9 + number * 1000 + each) for each in range(hints)]


async def packs_by_turn(policy, sizes):
    """How many of these packs each turn takes in."""
    shell = Shell(policy=policy)
    for number, hints in enumerate(sizes):
        assert shell.queue.offer(0, wire.encode_pack(Kind.TOUCH, 1, pack_of(number, hints)))
    policy.turns = Turns()
    async with shell.partition() as partition:
        await asyncio.sleep(1.0)
        assert partition.engine.cursor.scan == len(sizes)
    return list(policy.packs_by_turn.values())


@in_virtual_time
async def test_a_turn_takes_in_no_more_than_it_has_room_for_where_packs_suddenly_grow():
    policy = Meeting(key for number in range(20) for key in pack_of(number, 1000))
    sizes = [1] * FETCH_PACKS + [1000] * FETCH_PACKS_MOST
    assert await packs_by_turn(policy, sizes) == [FETCH_PACKS, 3, 3, 3, 3, 3, 1]


@in_virtual_time
async def test_a_turn_ends_early_while_most_keys_are_new_to_the_policy():
    turns = await packs_by_turn(Meeting(), [EFFORT] * 12)
    assert sum(turns) == 12
    assert max(turns) == 2  # the first may bring just as many as are allowed


class Counting(Fixed):
    """Counts the packs of each turn. Every key is wanted."""

    def __init__(self):
        self.turns = Turns()
        self.packs_by_turn = Counter()

    def on_hints(self, keys, counts, now):
        self.packs_by_turn[self.turns.count] += 1
        return keys


@pytest.mark.parametrize(("namespaces", "most"), [(1, FETCH_PACKS_MOST), (200, 2)])
@in_virtual_time
async def test_a_turn_takes_in_few_packs_whose_keys_are_of_many_namespaces(namespaces, most):
    policy = Counting()
    shell = Shell(*(namespace(f"n{each}") for each in range(namespaces)), policy=policy)
    for number in range(30):
        keys = [b"n%d:%d" % (key % namespaces, 200 * number + key) for key in range(200)]
        assert shell.queue.offer(0, wire.encode_pack(Kind.TOUCH, 1, keys))
    async with shell.partition() as partition:
        await asyncio.sleep(1.0)
        assert partition.engine.cursor.scan == 30
    assert max(policy.packs_by_turn.values()) == most


@in_virtual_time
async def test_units_have_time_to_hear_of_their_answers_between_two_turns_of_reading():
    policy = Counting()
    shell = Shell(policy=policy)
    for number in range(40):
        assert shell.queue.offer(0, wire.encode_pack(Kind.TOUCH, 1, pack_of(number, 1000)))
    async with shell.partition():
        await asyncio.sleep(1.0)
    turns = list(policy.packs_by_turn)
    assert len(turns) > 4
    assert min(after - before for before, after in pairwise(turns)) >= OTHERS


@in_virtual_time
async def test_a_queue_that_cannot_be_reached_is_asked_again_and_does_not_end_the_partition():
    shell = Shell()
    shell.tables["p"].rows[1,] = "one"
    shell.queue.fetch_errors[0] = [Unavailable("no broker")] * 20
    async with shell.partition():
        shell.queue.touch(b"p:1")
        await asyncio.sleep(9.0)
        assert shell.redis.get(b"p:1") is None
        assert shell.queue.asked <= 20  # no spinning
        await asyncio.sleep(2.0)
        assert shell.redis.get(b"p:1") == b'"one"'


@in_virtual_time
async def test_a_commit_that_fails_is_made_later():
    shell = Shell()
    shell.queue.commit_errors = [Unavailable("no broker")] * 5
    async with shell.partition():
        shell.queue.touch(b"p:1")
        await asyncio.sleep(1.0)
        assert shell.queue.backlog(0) == 0
