"""Absent rows have a small bucket of their own: a flood of keys that somebody has made up cannot take a namespace's quota."""

from __future__ import annotations

from math import inf
from statistics import quantiles

import pytest
from stories.engine import Story, namespace
from stories.market import Market

from cacheupdater.core.absent_bucket import BURST_S, DEBT_S, LOOK_S, AbsentBucket
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Cost, Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.policy import Fixed

QUOTA, SHARE = 50.0, 0.1
RATE = QUOTA * SHARE


def source(rate: float = 1000.0, **changed: object) -> Source:
    return Source("db", Bucket(rate, rate, now=-1.0), **{"concurrency": 5, **changed})


def bucket(*, quota: Bucket | None = None, at: Source | None = None) -> AbsentBucket:
    at = at or source()
    return AbsentBucket(at, quota, Cost(at), share=SHARE)


# --- the bucket -------------------------------------------------------------------------------------------


def test_a_debt_is_paid_by_a_share_of_the_quota():
    own = bucket(quota=Bucket(QUOTA, QUOTA, now=0.0))
    assert own.room(1.0) == inf
    own.charge(3, 1.0)
    assert own.opens_at(1.0) == 1.0 + 4 / RATE
    assert own.room(1.7) == 0
    assert own.room(1.8) == 1
    assert own.room(2.6) == 5


def test_after_a_debt_unseen_keys_are_set_apart_until_the_bucket_is_full():
    own = bucket(quota=Bucket(QUOTA, QUOTA, now=0.0))
    own.charge(1, 0.0)
    own.set_apart(4)
    assert own.room(1.4) == 2, "six are saved up"
    own.set_apart(2)
    assert own.room(1.4) == 0
    assert own.opens_at(1.4) == 1.4 + LOOK_S, "they may be given back at any time"
    own.set_apart(-6)
    assert own.room(1.4) == 6
    assert own.room(10.0) == 49
    assert own.room(10.3) == inf


def test_a_debt_holds_up_nobody_for_much_longer_than_a_second():
    own = bucket(quota=Bucket(QUOTA, QUOTA, now=0.0))
    own.charge(1000, 1.0)
    assert own.opens_at(1.0) == 1.0 + DEBT_S + 1 / RATE
    assert own.charged == 1000


def test_without_a_quota_it_is_a_share_of_the_source_and_follows_it():
    at = source(1000.0)
    own = bucket(at=at)
    assert own.rate == 100.0
    at.bucket.change(10.0, 10.0, now=0.0)
    assert own.rate == 1.0


def test_a_budget_of_time_pays_for_as_many_rows_as_it_can_load():
    at = source(1000.0, timed=True)
    cost = Cost(at)
    cost.per_row = 4.0
    assert AbsentBucket(at, None, cost, share=SHARE).rate == 25.0


def test_a_quiet_time_saves_up_ten_seconds_and_no_more():
    own = bucket(quota=Bucket(QUOTA, QUOTA, now=0.0))
    assert own.level(0.0) == 0.0
    assert own.level(1000.0) == BURST_S * RATE
    own.charge(int(BURST_S * RATE), 1000.0)
    assert not own.is_wary(1000.0)
    own.charge(1, 1000.0)
    assert own.is_wary(1000.0)


def test_a_clock_that_steps_back_pays_nothing():
    own = bucket(quota=Bucket(QUOTA, QUOTA, now=0.0))
    own.charge(4, 100.0)
    assert own.level(50.0) == -4.0
    assert own.level(100.0) == -4.0


def test_a_reload_forgives_no_debt_and_grants_no_burst():
    before, after = (bucket(quota=Bucket(QUOTA, QUOTA, now=0.0)) for _ in range(2))
    before.charge(4, 100.0)
    after.succeed(before)
    assert after.level(100.0) == -4.0
    assert after.is_wary(100.0)
    rich, poor = (bucket(quota=Bucket(QUOTA, QUOTA, now=0.0)) for _ in range(2))
    rich.level(0.0)
    rich.level(100.0)
    poor.succeed(rich)
    assert poor.level(100.0) == 0.0


# --- who is charged, and who waits ------------------------------------------------------------------------


class Desk(Story):
    """One namespace with a quota, whose absent bucket is in debt by so many rows at 1.0 s."""

    def __init__(self, *, debt: int = 0, **changed: object) -> None:
        space = namespace(quota=Bucket(QUOTA, QUOTA, now=-1.0), missing_ttl=0.0, every=0.0, **changed)
        super().__init__(space)
        self.bucket = space.absent_bucket
        if debt:
            self.bucket.charge(debt, 1.0)


def test_only_absent_rows_of_misses_of_unseen_keys_are_charged():
    """And they are charged even if Redis does not take their marks."""
    story = Desk()
    story.miss(b"p:1", at=0.0)
    story.refresh(0.0)
    story.touch(b"p:2", at=1.0)
    story.change(b"p:3", at=1.0)
    story.miss(b"p:1", at=1.0)
    story.end(story.start(1.0), 1.1, absent=True)
    assert (story.bucket.charged, story.count("absent_rows", "")) == (0, 0)
    story.miss(b"p:4", b"p:5", b"p:6", at=2.0)
    unit = story.start(2.0)
    story.engine.on_absent(unit, [b"p:4", b"p:5"], 2.1)
    story.fail(unit, 2.2, own=False)
    assert (story.bucket.charged, story.count("absent_rows", "")) == (2, 2)


def test_a_row_that_exists_is_never_charged():
    story = Desk()
    story.miss(*(b"p:%d" % n for n in range(50)), at=0.0)
    story.refresh(0.0)
    assert story.bucket.charged == 0


def test_in_debt_misses_of_unseen_keys_wait_and_everything_else_goes_on():
    story = Desk()
    story.miss(b"p:1", b"p:2", at=0.0)
    story.refresh(0.0)
    story.bucket.charge(int(2 * RATE), 1.0)
    story.miss(b"p:7", b"p:1", at=1.0)
    story.touch(b"p:8", at=1.0)
    story.change(b"p:9", at=1.0)
    assert sorted(story.refresh(1.0)) == [b"p:1", b"p:8", b"p:9"]
    work = story.step(1.5)
    assert not work.units
    assert work.wake <= 2.2
    assert story.refresh(2.2) == [b"p:7"], "its debt is paid, and one row more"


def test_readers_that_wait_for_the_updater_are_no_exception():
    story = Desk(debt=int(RATE))
    story.awaited(b"p:7", at=1.0)
    assert story.refresh(2.1) == []
    assert story.refresh(2.2) == [b"p:7"]


def test_another_miss_of_a_waiting_key_does_not_help_it_and_a_change_does():
    story = Desk(debt=int(RATE))
    story.miss(b"p:7", b"p:8", at=1.0)
    story.miss(b"p:7", at=1.1)
    story.touch(b"p:7", at=1.1)
    assert story.refresh(1.2) == []
    story.change(b"p:7", at=1.3)
    assert story.refresh(1.3) == [b"p:7"]
    assert story.bucket.waiting == 1


def test_a_key_that_an_operator_retries_does_not_wait():
    story = Desk(debt=int(RATE))
    story.engine.quarantine.put(b"p:7", "no", 1.0)
    assert story.engine.retry([b"p:7"], 1.0) == 1
    assert story.refresh(1.0) == [b"p:7"]


def test_a_debt_holds_up_what_stands_in_line_already():
    poor = source(10.0)
    poor.bucket.take(20.0)
    space = namespace(source=poor, missing_ttl=0.0)
    story = Story(space)
    story.miss(b"p:7", at=0.0)
    assert story.refresh(0.0) == [], "its source cannot pay"
    space.absent_bucket.charge(1, 0.0)
    assert story.refresh(1.5) == [], "the source could pay by now"
    assert story.refresh(2.0) == [b"p:7"]


def test_the_end_of_a_debt_is_not_missed_while_changes_wait_for_a_quiet_moment():
    class Patient(Fixed):
        learns = True

        def on_changes(self, keys, now):
            return set(keys)

    slow = Source("db", Bucket(1.0, 100.0, now=0.0), concurrency=5)
    space = namespace(source=slow, quota=Bucket(QUOTA, QUOTA, now=-1.0))
    story = Story(space, policy=Patient())
    space.absent_bucket.charge(int(2 * RATE), 10.0)
    story.change(b"p:1", at=10.0)
    story.miss(b"p:7", at=10.0)
    work = story.step(10.0)
    assert not work.units
    assert work.wake <= 12.0
    now = 10.0
    while now < 12.5 and not work.units:
        now = max(now, work.wake)
        work = story.step(now)
    assert [unit.keys for unit in work.units] == [[b"p:7"]]


def test_what_waits_leaves_by_age():
    story = Desk(debt=10_000)
    story.miss(b"p:7", at=1.0)
    for at in range(1, 40):
        story.step(float(at))
    assert story.count("dropped", "aged") == 1
    assert (story.bucket.waiting, story.engine.pending) == (0, 0)


def test_in_debt_a_full_backlog_gives_up_unseen_keys_before_touches():
    quota = Bucket(QUOTA, QUOTA, now=1.0)
    space = namespace(quota=quota, max_backlog=10, missing_ttl=0.0)
    space.absent_bucket.charge(10_000, 1.0)
    story = Story(space)
    story.touch(*(b"p:%d" % n for n in range(5)), at=1.0)
    story.miss(b"p:99", at=1.0)
    story.step(1.0)
    story.miss(*(b"p:%d" % n for n in range(100, 200)), at=1.0)
    assert sorted(story.refresh(2.0)) == [b"p:%d" % n for n in range(5)]
    assert space.absent_bucket.waiting == 5


def test_what_waits_for_the_bucket_does_not_count_as_due_at_the_source():
    story = Desk(debt=int(RATE))
    due = story.namespaces[0].source
    story.miss(b"p:7", b"p:8", at=1.0)
    story.step(1.0)
    assert (due.due, story.bucket.waiting) == (0.0, 2)
    story.miss(b"p:5", b"p:6", at=1.0)
    story.change(b"p:6", at=1.0)
    story.touch(b"p:9", at=1.0)
    assert due.due == 2.0
    story.refresh(1.0)
    assert (due.due, story.bucket.waiting) == (0.0, 3)
    story.engine.leave()
    assert (due.due, story.bucket.waiting) == (0.0, 0)


def test_explain_says_what_an_unseen_key_waits_for():
    story = Desk(debt=int(RATE))
    story.miss(b"p:7", at=1.0)
    story.step(1.0)
    seat = story.engine.explain(b"p:7", 1.0).seat
    assert seat.waits_for.startswith("the absent bucket of namespace p, for 1.2 s: more rows than 5 a second")


def test_a_wary_namespace_loads_as_many_unseen_keys_at_a_time_as_its_bucket_pays():
    story = Desk(debt=1)
    story.miss(*(b"p:%d" % n for n in range(20)), at=1.0)
    assert story.starts(1.0) == []
    (first,) = story.step(2.0).units
    assert len(first.keys) == 4
    assert story.starts(2.05) == [], "these may have no rows"
    story.end(first, 2.1)
    (second,) = story.step(2.1).units
    assert len(second.keys) == 4, "they had, so their places are free"
    story.end(second, 2.2, absent=True)
    assert [len(keys) for keys in story.starts(2.3)] == [1], "these had none, and one more is saved up"


def test_a_unit_that_fails_gives_its_places_back():
    story = Desk(debt=1)
    story.miss(b"p:7", at=1.0)
    unit = story.start(1.5)
    assert story.bucket.room(1.5) == 0
    story.fail(unit, 1.6, own=False)
    assert story.bucket.room(1.7) == 2


def test_new_keys_of_an_honest_peer_are_loaded_beside_a_flood_of_keys_without_rows():
    story = Story(namespace(quota=Bucket(QUOTA, QUOTA, now=-1.0), missing_ttl=0.0, every=0.0))
    honest: dict[bytes, float] = {}
    waits, running = [], []
    for tick in range(6_000):
        now = tick / 100
        if tick % 10 == 0:
            story.miss(*(b"p:%d" % (1_000 * tick + n) for n in range(100)), at=now, peer=1)
        if tick % 100 == 0:
            key = b"p:9%d" % (10_000_000 + tick)
            honest[key] = now
            story.miss(key, at=now, peer=2)
        for unit in [each for each in running if each.began <= now - 0.02]:
            running.remove(unit)
            waits += [now - honest[key] for key in unit.keys if key in honest]
            absent = [key for key in unit.keys if key not in honest]
            story.engine.on_absent(unit, absent, now)
            story.engine.on_answers(unit, story.written(unit), now, absent=absent)
        running += story.step(now).units
    assert len(waits) >= 59
    assert max(waits) <= DEBT_S + 3 / RATE


# --- a flood ----------------------------------------------------------------------------------------------

KNOWN = [b"p:%d" % number for number in range(10_000_000, 10_000_100)]
SECONDS = 60.0
FLOOD = 1_000.0  # misses of made-up keys a second
EVERY = 0.05  # seconds between two misses of known keys, and between two reads that find a value
WARM = 10.0  # seconds without a flood
UNDER_WAY = (
    QUOTA  # rows of units that had started before their absent rows were charged: the quota holds no more
)


class Flooded(Market):
    """A namespace with a quota of 50 rows/s, and a hundred known keys, each missed and touched every five seconds."""

    def __init__(self, *, flood: float, share: float = SHARE, partitions: int = 1) -> None:
        quota = Bucket(QUOTA, QUOTA, now=0.0)
        space = namespace("p", source=source(500.0), quota=quota, missing_share=share, every=1.0)
        super().__init__(*(Story(space) for _ in range(partitions)))
        self.absent: list[float] = []  # when a load found no row
        self.waits: dict[Kind, list[float]] = {
            Kind.MISS: [],
            Kind.TOUCH: [],
        }  # of known keys, since the flood
        self._read: dict[bytes, tuple[Kind, float]] = {}
        for partition in range(partitions) if flood else ():
            self.offer("p", flood / partitions, SECONDS - WARM, kind=Kind.MISS, engine=partition, since=WARM)
        for at in range(int(SECONDS / EVERY)):
            for kind, place in ((Kind.MISS, at), (Kind.TOUCH, at + 50)):
                number = place % len(KNOWN)
                self.offer_keys([KNOWN[number]], at * EVERY, kind=kind, engine=number % partitions)
        self.run(SECONDS)

    def _hint(self, keys, kind, engine, now):
        if keys[0] in KNOWN:
            self._read.setdefault(keys[0], (kind, now))
        super()._hint(keys, kind, engine, now)

    def end(self, story, unit, seconds, now):
        del seconds
        absent = [key for key in unit.keys if key not in KNOWN]
        self.absent += [now] * len(absent)
        for key in unit.keys:
            kind, since = self._read.pop(key, (None, 0.0))
            if kind is not None and since >= WARM:
                self.waits[kind].append(now - since)
        story.engine.on_absent(unit, absent, now)
        story.engine.on_answers(unit, story.written(unit), now, absent=absent)

    def most_absent(self, seconds: float) -> int:
        """Absent rows of the window that has most."""
        return max((sum(at <= each < at + seconds for each in self.absent) for at in self.absent), default=0)


def p99(waits: list[float]) -> float:
    return 1000.0 * quantiles(waits, n=100)[-1]


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.prove), 4])
def test_a_flood_of_made_up_keys_takes_nothing_from_known_ones(partitions, record_property):
    """Twenty times the quota. Each known key is missed once in five seconds, so all are to be loaded each time."""
    quiet = Flooded(flood=0.0, partitions=partitions)
    flooded = Flooded(flood=FLOOD, partitions=partitions)
    asked = int((SECONDS - WARM) / EVERY)
    for kind in (Kind.MISS, Kind.TOUCH):
        waits, alone = flooded.waits[kind], quiet.waits[kind]
        record_property(
            f"figure: {kind.name.lower()} of a known key beside a flood, {partitions} partitions",
            f"{len(waits)} of {asked} served, p99 {p99(waits):.0f} ms (without the flood {p99(alone):.0f} ms)",
        )
        assert len(waits) >= 0.99 * len(alone) >= 0.98 * asked
        assert p99(waits) <= 100.0
    for seconds in (1.0, 10.0, SECONDS):
        most = flooded.most_absent(seconds)
        record_property(
            f"figure: most absent rows in {seconds:.0f} s beside {QUOTA:.0f} rows/s, {partitions} partitions",
            most,
        )
        assert most <= RATE * seconds + BURST_S * RATE + UNDER_WAY
    assert len(flooded.absent) >= 0.9 * RATE * (SECONDS - WARM), "new keys still have the bucket"


def test_without_a_bucket_the_same_flood_would_take_the_quota(record_property):
    """The control: with a share of 100 %, absent rows may cost as much as there is."""
    before = Flooded(flood=FLOOD, share=1.0)
    served = len(before.waits[Kind.MISS])
    record_property("figure: misses of known keys beside the same flood without a bucket, served", served)
    assert served < 100


def test_no_policy_learns_keys_that_somebody_has_made_up():
    class Listening(Fixed):
        learns = True

        def __init__(self):
            self.missed = []

        def on_misses(self, keys, counts, now):
            self.missed += keys

    space = namespace(quota=Bucket(QUOTA, QUOTA, now=-1.0))
    policy = Listening()
    story = Story(space, policy=policy)
    story.miss(b"p:1", at=0.0)
    story.refresh(0.0)
    space.absent_bucket.charge(100, 1.0)
    story.miss(b"p:2", at=1.0)
    story.step(1.0)
    story.miss(b"p:3", b"p:1", b"p:4", at=1.1)
    assert policy.missed == [b"p:1", b"p:2", b"p:1"], "a debt is noticed by the step after it"
