"""One turn of the loop does a bounded amount of work, however much waits; the rest follows at once."""

from __future__ import annotations

from stories.engine import Story, namespace, plenty

from cacheupdater.core.answers import Answer, Result
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Hints, Kind

MANY = 5_000


def keys(count: int, form: bytes = b"p:%d") -> list[bytes]:
    return [form % at for at in range(count)]


def test_units_of_nobodys_keys_are_taken_apart_some_at_a_time():
    story = Story(namespace(source=Source("db", plenty(), concurrency=2)), turn_keys=500)
    story.touch(*keys(MANY, b"p:x%d"), b"p:7", at=0.0)
    turns = 0
    while True:
        before = story.engine.tracked
        work = story.step(0.0)
        turns += 1
        assert before - story.engine.tracked <= 500 + 2 * story.limits.unit_keys
        if work.units:
            break
        assert work.wake == 0.0, "the rest is next"

    assert [unit.keys for unit in work.units] == [[b"p:7"]]
    assert turns >= MANY / 900


def test_what_has_aged_is_dropped_some_at_a_time_and_all_of_it():
    story = Story(namespace(source=Source("db", Bucket(1e-6, 1.0, now=0.0), concurrency=1)), turn_keys=500)
    for at, key in enumerate(keys(MANY)):
        story.engine.on_hints([Hints(at, Kind.TOUCH, [key], ())], 0.0)
    dropped, now = 0, 30.5
    while story.engine.tracked:
        before = story.engine.tracked
        work = story.step(now)
        assert before - story.engine.tracked <= 500
        dropped += before - story.engine.tracked
        assert work.wake <= now or not story.engine.tracked

    assert dropped == MANY
    assert story.count("dropped", "aged") == MANY
    assert story.done == MANY


def test_aged_key_that_leaves_its_unit_for_a_miss_meanwhile_is_counted_once():
    slots = Source("db", Bucket(1e-6, 1.0, now=0.0), concurrency=1)
    story = Story(namespace(source=slots), turn_keys=1)
    story.touch(b"p:1", b"p:2", at=0.0)
    story.touch(b"p:3", b"p:4", at=0.0)
    story.step(30.5)
    story.miss(b"p:4", at=30.6)
    story.step(31.6)
    story.step(31.7)
    story.step(31.8)

    assert story.engine.tracked == story.engine.pending == 0
    assert story.count("dropped", "aged") == 4
    assert story.done == 3


def test_keys_that_nothing_was_decided_about_come_back_together():
    """One by one they would stand in the backlog as a unit each, and to order thousands of those takes a turn of 80 ms."""
    story = Story(namespace())
    story.touch(*keys(200), at=0.0)
    unit = story.start(0.0)
    story.engine.on_unasked(unit, [Answer(Result.UNDECIDED, 0.5)] * 200, 0.1)
    assert story.step(0.5).units == []
    again = story.start(0.7)

    assert again.keys == keys(200)
    assert len(again.parts) == 1


def test_holds_that_end_together_are_forgotten_some_at_a_time():
    story = Story(namespace(every=5.0), turn_seats=500)
    story.touch(*keys(MANY), at=0.0)
    while story.engine.pending:
        story.refresh(0.0)
    turns, tracked = 0, MANY
    while tracked:
        work = story.step(5.0)
        turns += 1
        assert tracked - story.engine.tracked <= 500 + story.limits.unit_keys
        tracked = story.engine.tracked
        assert work.wake <= 5.0 or not tracked

    assert turns >= MANY / 900


def test_touch_is_served_although_the_end_of_its_hold_has_not_been_looked_at_yet():
    story = Story(namespace(every=5.0), turn_seats=500)
    story.touch(*keys(MANY), at=0.0)
    while story.engine.pending:
        story.refresh(0.0)
    story.touch(*keys(MANY), at=5.0)
    served: list[bytes] = []
    while story.engine.pending:
        served += story.refresh(5.0)

    assert sorted(served) == sorted(keys(MANY))


def test_a_full_backlog_of_many_peers_is_put_in_order_once_and_not_for_each_key():
    """A thousand peers, of which one has most, key by key; and then packs of another, each key of which takes the place of one."""
    looks = 0

    class Counted(dict):
        def items(self):
            nonlocal looks
            looks += 1
            return super().items()

        def __iter__(self):
            nonlocal looks
            looks += 1
            return super().__iter__()

    story = Story(
        namespace(source=Source("db", Bucket(1e-6, 1.0, now=0.0), concurrency=1), max_backlog=4_000)
    )
    for at, key in enumerate(keys(4_000)):
        peer = 1 if at % 2 else 2 + at % 1_000
        story.engine.on_hints([Hints(at, Kind.MISS, [key], (), peer)], 0.0)
    (backlog,) = story.engine._dedup.schedule._backlogs.values()
    backlog.by_peer = Counted(backlog.by_peer)
    story.engine.on_hints([Hints(4_000, Kind.MISS, keys(1_000, b"p:1%05d"), (), 3)], 0.0)

    assert backlog.waiting == 4_000
    assert backlog.by_peer[story.engine._peers.of(1)] == 1_000
    assert looks == 5, "once for each unit of the pack"
