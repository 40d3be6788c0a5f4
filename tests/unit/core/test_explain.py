"""The core's report on one key: its state, and the first reason why its load must wait."""

import pytest
from stories.engine import Story, namespace

from cacheupdater.core.answers import Result
from cacheupdater.core.breaker import SILENT_S, TROUBLES
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.cursors import Cursor
from cacheupdater.core.explain import NO_SEAT, hindrance, shortage
from cacheupdater.core.hints import Kind
from cacheupdater.core.peers import Peer
from cacheupdater.core.unit import PATIENT, URGENCY, Demand, Unit

A, B = b"p:1", b"p:2"
AGE_S = 30.0


def said(story, key=A, at=0.0):
    return story.engine.explain(key, at).seat


def test_a_key_that_nobody_has_asked_for_has_no_seat():
    assert said(Story()) == NO_SEAT


def test_a_running_head_tells_since_when_and_what_waits_behind_it():
    story = Story()
    story.touch(A, at=1.0)
    story.start(1.0)
    assert said(story, at=1.5)[:3] == ("running", "", 0.5)
    story.change(A, at=1.6)
    assert said(story, at=2.0).tail == "change"


def test_a_held_key_tells_when_its_hold_is_over():
    story = Story(namespace(every=5.0))
    story.touch(A, at=1.0)
    story.refresh(1.0)
    seat = said(story, at=3.0)
    assert (seat.state, seat.since) == ("held", 2.0)
    assert seat.waits_for == "its hold to be over, in 3.0 s"


def hindered(space, prepare=lambda story: None):
    story = Story(space)
    prepare(story)
    story.touch(A, at=0.0)
    assert story.starts(0.0) == []
    return said(story, at=0.0)


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (
            namespace(source=Source("db", Bucket(10.0, 10.0, now=0.0), concurrency=1)),
            "the budget of source db",
        ),
        (
            namespace(source=Source("db", Bucket(10.0, 10.0, now=-9.0), concurrency=0)),
            "a connection of source db",
        ),
        (namespace(quota=Bucket(1.0, 1.0, now=0.0)), "the quota of namespace p"),
    ],
)
def test_a_due_key_tells_the_first_thing_in_its_way(space, why):
    seat = hindered(space)
    assert (seat.state, seat.kind) == ("due", "touch")
    assert seat.waits_for.startswith(why)


def waits_for(space, kind, urgency=None, **more):
    open_pack = Cursor(0).read(0, 0.0, Peer(1))
    demand = Demand(kind, URGENCY[kind] if urgency is None else urgency, open_pack, 0.0, **more)
    return hindrance(Unit(space, [A], demand), 0.0)


def test_a_change_whose_reader_nobody_expects_waits_for_a_quiet_moment():
    space = namespace(source=Source("db", Bucket(100.0, 100.0, now=-9.0), concurrency=2))
    assert waits_for(space, Kind.CHANGE, PATIENT).startswith("a quiet moment of its source")
    assert waits_for(space, Kind.CHANGE) == "its turn among namespaces and peers"


def test_a_key_of_a_source_that_is_only_probed_says_so():
    source = Source("db", Bucket(100.0, 100.0, now=-99.0), concurrency=2)
    source.breaker.answered(-SILENT_S, 0.0)
    for number in range(TROUBLES):
        source.breaker.troubled(f"unit {number}", 0.0)
    assert waits_for(namespace(source=source), Kind.TOUCH).startswith("source db: nothing but trouble")


def test_a_miss_of_an_unseen_key_waits_for_the_absent_bucket_while_that_is_wary():
    space = namespace(source=Source("db", Bucket(100.0, 100.0, now=-9.0), concurrency=2))
    space.absent_bucket.charge(1_000, 0.0)
    assert waits_for(space, Kind.MISS, unseen=True).startswith("the absent bucket of namespace p, for ")
    assert waits_for(space, Kind.MISS) == "its turn among namespaces and peers"


def test_a_miss_that_hotter_ones_overtake_says_so_and_a_touch_does_not():
    story = Story(namespace(source=Source("db", Bucket(10.0, 10.0, now=0.0), concurrency=1)))
    story.miss(*(b"p:%d" % number for number in range(20)), at=0.0)
    story.touch(b"p:99", at=0.0)
    hotter = "more readers ask go first"

    assert hotter in story.engine.explain(b"p:7", 0.0).seat.waits_for
    assert hotter not in story.engine.explain(b"p:99", 0.0).seat.waits_for


def test_a_slow_key_waits_for_another_one():
    space = namespace(source=Source("db", Bucket(100.0, 100.0, now=-9.0), concurrency=2))
    story = Story(space)
    story.engine.slow_keys.suspect([A, B], 1)
    story.touch(A, B, at=0.0)
    story.start(0.0)

    assert said(story, key=B, at=0.1).waits_for.startswith("the end of another slow key")


def test_a_key_that_failed_waits_for_its_next_try():
    story = Story()
    story.touch(A, at=0.0)
    story.fail(story.start(0.0), 0.5, own=False)
    assert said(story, at=0.5).waits_for == "its next try, in 0.1 s"


def test_quarantine_and_absence_are_told():
    story = Story(max_attempts=1)
    story.touch(A, at=0.0)
    story.fail(story.start(0.0), 0.5, own=True)
    assert story.engine.explain(A, 1.0).quarantined.error == "no"
    story.miss(B, at=2.0)
    story.end(story.start(2.0), 2.0, Result.WRITTEN, absent=True)
    assert story.engine.explain(B, 2.1).absent
    assert not story.engine.explain(A, 2.1).absent


# --- what pays for less than is asked ---------------------------------------------------------------------


def poor(rate=10.0, *, level=0.0, **more):
    """A source with so much saved up at time zero."""
    return Source("db", Bucket(rate, rate, now=-level / rate), **{"concurrency": 2, **more})


def asked(space, keys=100):
    story = Story(space)
    story.miss(*(b"p:%d" % number for number in range(keys)), at=0.0)
    return story


def test_a_budget_that_needs_seconds_for_what_is_due_is_short():
    space = namespace(source=poor(level=4.0))
    asked(space)
    short = shortage(space, AGE_S, 0.0)
    assert short == ("budget", "db", False, 10.0, 100.0, pytest.approx(9.6), AGE_S)


def test_keys_that_are_worth_their_row_wait_for_the_budget_too():
    space = namespace(source=poor())
    asked(space, 50)
    other = namespace("other", source=space.source)
    elsewhere = namespace("away", source=poor())
    short = shortage(space, AGE_S, 0.0, worthy={space: 30, other: 20, elsewhere: 70})
    assert (short.waiting, short.seconds) == (100.0, pytest.approx(10.0))


def test_a_budget_that_pays_for_what_is_due_within_a_second_is_not_short():
    space = namespace(source=poor(rate=200.0))
    asked(space)
    assert shortage(space, AGE_S, 0.0) is None


def test_a_budget_of_a_row_an_hour_is_short_of_the_next_row():
    space = namespace(source=poor(rate=1 / 3600))
    assert shortage(space, AGE_S, 0.0).seconds == pytest.approx(3600.0)


def test_a_small_budget_is_short_also_in_the_moment_before_a_load_when_its_row_is_there():
    space = namespace(source=poor(rate=2.0, level=1.5))
    asked(space)
    assert shortage(space, AGE_S, 0.0).seconds == pytest.approx(49.25)


def test_a_budget_that_is_saved_up_is_not_what_due_keys_wait_for():
    """They wait for a quota, or for a connection."""
    quota = Bucket(5.0, 5.0, now=0.0)
    space = namespace(source=poor(level=10.0), quota=quota)
    asked(space)
    beside = namespace("beside", source=space.source)
    assert shortage(space, AGE_S, 0.0)[:5] == ("quota", "p", False, 5.0, 100.0)
    assert shortage(beside, AGE_S, 0.0) is None


def test_of_a_budget_and_a_quota_the_one_that_needs_longer_is_told():
    for rate, whose in ((1.0, "quota"), (50.0, "budget")):
        space = namespace(source=poor(), quota=Bucket(rate, rate, now=0.0))
        asked(space)
        assert shortage(space, AGE_S, 0.0).whose == whose


def test_a_source_that_is_only_probed_is_not_short_of_budget():
    space = namespace(source=poor())
    asked(space)
    space.source.breaker.answered(-SILENT_S, 0.0)
    for number in range(TROUBLES):
        space.source.breaker.troubled(f"unit {number}", 0.0)
    assert shortage(space, AGE_S, 0.0) is None


def test_a_budget_of_time_is_told_in_milliseconds_and_a_namespace_may_wait_for_less_long_than_others():
    space = namespace(source=poor(rate=300.0, timed=True), backlog_age=5.0)
    space.cost.per_row = 20.0
    asked(space)
    short = shortage(space, AGE_S, 0.0)
    assert (short.timed, short.waiting, short.given_up) == (True, 2000.0, 5.0)
    assert short.seconds == pytest.approx(2000 / 300)
