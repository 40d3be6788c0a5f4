"""The policy `price` in its engine: which hints become loads, and what each load teaches."""

from __future__ import annotations

from random import Random

import pytest
from stories.engine import Story
from stories.price import priced, source

from cacheupdater.core.answers import ADOPTED, FOREIGN, SPARED, UNCHANGED, WRITTEN
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.outcomes import Load
from cacheupdater.core.policy import Fixed
from cacheupdater.price import Market, Price
from cacheupdater.price.table import LOADED

A, B, C = b"p:1", b"p:2", b"p:3"


class Priced(Story):
    """A story whose engine asks the policy `price`; the price itself is what the story says."""

    def __init__(self, *, rate=100.0, burst=None, at=None, beside=None, **terms):
        self.source = at or source(rate, burst=burst)
        self.space = priced(at=self.source, **terms)
        spaces = [self.space, beside] if beside else [self.space]
        keyspace = Keyspace([(each.pattern, each) for each in spaces])
        self.market = Market(self.source, spaces, random=Random(1).random, now=0.0)
        self.price = Price(keyspace, spaces, {self.source: self.market}, limits=Limits(), now=0.0)
        super().__init__(*spaces, policy=self.price)

    def at_price(self, value):
        self.market.price = value
        self.price.spaces.refresh()
        return self

    def known(self, *keys, at=0.0):
        """Read and loaded for the first time."""
        self.at_price(1e9)
        self.miss(*keys, at=at)
        assert sorted(self.refresh(at)) == sorted(keys)
        return self


class Listening(Fixed):
    """Remembers what it is told."""

    learns = True

    def __init__(self, patient=()):
        self.patient = set(patient)
        self.loaded, self.missed, self.changed = [], [], []

    def on_misses(self, keys, counts, now):
        self.missed += keys

    def on_changes(self, keys, now):
        self.changed += keys
        return self.patient

    def on_loaded(self, loaded, now):
        self.loaded.append(loaded)


# --- the automaton's way, whatever the price -------------------------------------------------------------


def test_miss_is_loaded_whatever_the_price():
    story = Priced().at_price(1e9)
    story.miss(A, at=0.0)

    assert story.starts(0.0) == [[A]]
    assert story.done == 0


def test_touch_is_loaded_only_when_it_is_worth_its_price_and_counted_where_it_is_not():
    story = Priced().known(A)
    story.touch(A, at=20.0)
    assert story.starts(20.0) == []
    assert story.count("decisions", "policy") == 1
    story.at_price(1e-3)
    story.touch(A, at=21.0)

    assert story.starts(21.0) == [[A]]
    assert story.count("decisions", "policy") == 1


def test_a_reader_s_own_load_counts_as_one_of_ours():
    """At this price a key is worth a load again some seconds after its last one."""
    starts = {}
    for filled in (False, True):
        story = Priced().known(A)
        story.at_price(1e9)
        for at in range(1, 30):
            story.touch(A, at=float(at))
        story.at_price(1e-2)
        if filled:
            story.fill(A, at=30.0, began=29.9)
        else:
            story.touch(A, at=30.0)
        starts[filled] = story.starts(30.0)
    assert starts == {False: [[A]], True: []}


def test_a_key_that_is_met_by_its_fill_is_as_young_as_the_fill():
    story = Priced().at_price(1e9)
    story.fill(A, at=30.0, began=29.0)
    [row] = story.price.table.find([A])
    assert story.price.table.times[row, LOADED] == 29.0
    story.fill(A, at=31.0, began=31.0)
    assert story.price.table.times[row, LOADED] == 29.0, "one claim is believed in half of the value's life"


def test_a_fed_change_of_a_key_that_is_read_is_loaded_and_the_value_of_any_other_is_removed():
    story = Priced().known(A, B)
    for at in range(1, 100):
        story.touch(A, at=float(at))
        story.step(float(at))
    story.at_price(20.0)
    story.fed(A, B, C, at=100.0)
    work = story.step(100.0)
    assert [unit.keys for unit in work.units] == [[A]]
    assert work.invalidation.keys == [B, C]


def test_change_of_a_key_that_is_read_is_loaded_at_once():
    story = Priced().known(A)
    for at in range(1, 100):
        story.touch(A, at=float(at))
        story.step(float(at))
    story.at_price(0.5)
    story.change(A, at=100.0)

    assert story.starts(100.0) == [[A]]


def test_tick_asks_for_what_nobody_has_just_read_and_wake_says_when():
    story = Priced().known(A)
    now, started = 0.0, []
    story.at_price(1e-3)
    for _ in range(2_000):
        work = story.step(now)
        assert now < work.wake <= now + 0.021
        now = work.wake
        for unit in work.units:
            started.append(now)
            story.end(unit, now)

    assert len(started) > 2


# --- changes that can wait -------------------------------------------------------------------------------


def waiting(level, rate=10.0):
    """A change of a key that is hardly worth a row, and so much in the bucket."""
    story = Priced(rate=10.0).known(A)
    story.at_price(1e6)
    story.source.bucket.change(rate, 10.0, now=10.0)
    story.source.bucket.take(story.source.bucket.level(10.0) - level)
    story.change(A, at=10.0)
    return story


def test_change_that_can_wait_is_served_while_the_bucket_is_more_than_half_full():
    assert waiting(level=6.0).starts(10.0) == [[A]]


def test_change_that_can_wait_waits_until_the_bucket_is_half_full_again_and_does_not_hold_back_others():
    story = waiting(level=2.0)
    work = story.step(10.0)
    assert work.units == []
    story.miss(B, at=10.0)
    assert story.starts(10.0) == [[B]]
    now = 10.0
    while not (units := story.step(now).units):
        now += 0.01

    assert [unit.keys for unit in units] == [[A]]
    assert now == pytest.approx(10.4, abs=0.05)  # 10 rows a second: from 1 to 5


def test_change_that_can_wait_is_no_claim_on_the_room_of_others():
    story = waiting(level=2.0)

    assert story.source.due == 0.0
    assert story.engine.pending == 1


def test_keys_that_wait_for_a_quota_are_no_claim_on_the_room_of_other_namespaces():
    shared = source(500.0)
    limited = priced("a", at=shared, quota=Bucket(5.0, 5.0, now=-1.0))
    story = Priced(at=shared, beside=limited).at_price(1e-9)
    read = [b"p:%d" % number for number in range(50)]
    story.known(*read)
    story.miss(*(b"a:%d" % number for number in range(2_000)), at=1.0)
    story.at_price(1e-9).touch(*read, at=10.0)
    started = [key for names in story.starts(10.0) for key in names]

    assert set(read) <= set(started)
    assert shared.due <= 10.0


def test_change_that_waited_for_too_long_is_dropped_and_its_key_removed():
    story = waiting(level=0.0, rate=1e-3)
    work, now = story.step(10.0), 10.0
    while work.invalidation is None:
        assert work.units == []
        now += 1.0
        work = story.step(now)

    assert now == pytest.approx(10.0 + story.limits.backlog_age, abs=1.5)
    assert work.invalidation.keys == [A]
    assert story.count("dropped", "unworthy") == 1
    done = story.done
    story.removed(work.invalidation, now)
    assert story.done > done
    assert story.engine.pending == 0


def test_miss_of_a_key_whose_change_waits_is_loaded_at_once_for_both():
    story = waiting(level=2.0)
    story.step(10.0)
    story.miss(A, at=10.1)

    assert story.starts(10.1) == [[A]]


def test_change_of_a_key_that_nobody_ever_read_can_wait():
    story = Priced(rate=10.0).at_price(1e-3)
    story.source.bucket.take(8.0)
    story.change(b"p:99", at=0.0)

    assert story.starts(0.0) == []
    assert story.engine.pending == 1


def test_each_read_of_nobodys_key_is_counted_though_it_would_not_be_worth_its_row():
    story = Priced().at_price(1e-3)
    story.touch(b"p:007", at=0.0)
    assert story.starts(0.0) == []
    for second in range(1, 10):
        story.engine.on_hints([Hints(second, Kind.TOUCH, [A, b"p:007"], (1, 10))], second * 0.01)

    assert story.count("dropped", "unknown") == 91


# --- what a load teaches ---------------------------------------------------------------------------------


def test_loads_are_told_claim_by_claim_with_what_changed_what_rows_said_and_when_their_heads_began():
    policy = Listening()
    story = Story(policy=policy)
    story.touch(A, B, at=0.0)
    story.change(C, at=0.0)
    unit = story.start(1.0)
    stamps = {A: 5.0, B: None, C: 7.0}
    answers = {A: WRITTEN, B: UNCHANGED, C: WRITTEN}
    story.engine.on_answers(
        unit,
        [answers[key] for key in unit.keys],
        2.0,
        load=Load(0.1, tuple(stamps[key] for key in unit.keys)),
    )

    told = {loaded.kind: loaded for loaded in policy.loaded}
    assert (list(told[Kind.TOUCH].keys), list(told[Kind.CHANGE].keys)) == ([A, B], [C])
    assert (list(told[Kind.TOUCH].changed), list(told[Kind.CHANGE].changed)) == ([True, False], [True])
    assert (list(told[Kind.TOUCH].stamps), list(told[Kind.CHANGE].stamps)) == ([5.0, None], [7.0])
    assert {loaded.began for loaded in policy.loaded} == {1.0}


def test_first_write_over_a_value_of_the_application_is_told_as_a_load_that_proves_nothing():
    policy = Listening()
    story = Story(policy=policy)
    story.touch(A, B, C, at=0.0)
    unit = story.start(1.0)
    answers = dict(zip(unit.keys, [ADOPTED, WRITTEN, FOREIGN], strict=True))
    story.engine.on_answers(unit, list(answers.values()), 2.0)

    [told] = policy.loaded
    assert dict(zip(told.keys, told.changed, strict=True)) == {unit.keys[0]: None, unit.keys[1]: True}


def test_misses_and_changes_are_told_before_the_automaton_decides():
    policy = Listening()
    story = Story(policy=policy)
    story.miss(A, at=0.0)
    story.miss(A, at=0.0)
    story.change(B, at=0.0)

    assert (policy.missed, policy.changed) == ([A, A], [B])
    assert sorted(story.start(0.0).keys) == [A, B]


def test_only_the_patient_keys_of_a_pack_wait():
    db = source(10.0)
    story = Story(priced(at=db), policy=Listening(patient=[B]))
    db.bucket.take(9.0)
    story.change(A, B, at=0.0)

    assert story.starts(0.0) == [[A]]
    assert story.engine.pending == 2


def one_that_waits(*, at_first=True):
    """A story of one key whose first change can wait, beside a database that is never quiet."""
    db = source(10.0)
    policy = Listening(patient=[A] if at_first else [])
    story = Story(priced(at=db), policy=policy)
    db.bucket.take(8.0)
    return story, policy


def test_change_that_can_wait_still_can_when_another_like_it_merges():
    story, _ = one_that_waits()
    story.change(A, at=0.0)
    story.change(A, at=0.0)

    assert story.starts(0.0) == []


def test_change_that_can_wait_does_not_any_more_when_one_that_cannot_merges():
    story, policy = one_that_waits()
    story.change(A, at=0.0)
    policy.patient = set()
    story.change(A, at=0.0)

    assert story.starts(0.0) == [[A]]


def test_change_that_cannot_wait_is_not_held_up_by_one_that_can():
    story, policy = one_that_waits(at_first=False)
    story.change(A, at=0.0)
    policy.patient = {A}
    story.change(A, at=0.0)

    assert story.starts(0.0) == [[A]]


def test_touch_worth_its_row_hurries_a_change_that_waits():
    story, _ = one_that_waits()
    story.change(A, at=0.0)
    assert story.starts(0.0) == []
    story.touch(A, at=0.0)

    assert story.starts(0.0) == [[A]]
    assert (story.count("decisions", "merge"), story.count("decisions", "hold")) == (1, 0)


def test_change_that_can_wait_is_as_patient_after_the_gap_of_the_last():
    story, policy = one_that_waits(at_first=False)
    story.change(A, at=0.0)
    story.end(story.start(0.0), 0.01)
    policy.patient = {A}
    story.change(A, at=0.05)

    assert story.starts(0.11) == []


@pytest.mark.parametrize("failed", [False, True])
def test_change_that_can_wait_is_as_patient_behind_a_head_that_runs(failed):
    story, policy = one_that_waits(at_first=False)
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    policy.patient = {A}
    story.change(A, at=0.01)
    story.change(A, at=0.02)
    (story.fail(unit, 0.03, own=False) if failed else story.end(unit, 0.03))

    # a failed head takes its tail with it, and is as urgent as it was: a touch
    assert story.starts(0.11) == []
    assert bool(story.starts(5.0 if failed else 0.2)) is failed


def test_reads_of_a_key_whose_change_waits_are_served_as_soon_as_they_are_worth_a_row():
    story = waiting(level=2.0)
    story.touch(A, at=10.01)
    assert story.starts(10.01) == []
    story.at_price(1e-3)
    story.touch(A, at=10.02)

    assert story.starts(10.02) == [[A]]
    story.touch(A, at=10.3)  # the load takes its time, which is no reason for another
    story.touch(A, at=10.4)
    assert story.engine.pending == 1


def test_loads_that_failed_teach_nothing():
    policy = Listening()
    story = Story(policy=policy)
    story.touch(A, at=0.0)
    story.fail(story.start(0.0), 0.1, own=False)

    assert policy.loaded == []


def test_price_learns_from_answers_that_a_key_changes():
    story = Priced()
    story.known(A, B)
    for turn in range(1, 40):
        now = turn * 10.0
        story.at_price(1e-3)
        story.touch(A, B, at=now)
        for unit in story.step(now).units:
            answers = [WRITTEN if key == A else UNCHANGED for key in unit.keys]
            story.engine.on_answers(unit, answers, now + 0.01)
    table = story.price.table
    changing, static = table.state[table.find([A, B])]

    assert changing[0] / changing[1] > 20 * static[0] / static[1]


@pytest.mark.parametrize("why", ["paused", "quarantined"])
def test_what_was_spared_is_loaded_as_soon_as_it_may_be(why):
    """The change was told, and its load never came. The value is there, so no miss asks for it either."""
    story = Priced().known(A).at_price(1e-6)
    for second in range(10):
        story.touch(A, at=float(second))
        story.refresh(float(second))
    if why == "paused":
        story.engine.pause(story.namespaces, 10.0)
    else:
        story.engine.quarantine.put(A, "poison", 10.0)
    story.set_(A, at=11.0)
    removal = story.step(11.0).invalidation
    story.engine.on_invalidated(removal, [SPARED], 11.1)
    if why == "paused":
        story.engine.pause([], 12.0)
    else:
        story.engine.quarantine.forget(A)
    began = next(at for at in range(1200, 7000, 10) if touched(story, at / 100))

    assert began / 100 < 12.0 + 2.0


def touched(story, at):
    """Whether the key is loaded upon a touch at this time."""
    story.touch(A, at=at)
    return bool(story.refresh(at))


def test_touches_are_paid_by_the_same_bucket_as_everything_else():
    story = Priced(rate=5.0)
    story.known(*(b"p:%d" % number for number in range(1, 6)))
    story.at_price(1e-3)
    loads, now = 0, 0.0
    while now < 60.0:
        story.touch(*(b"p:%d" % number for number in range(1, 200)), at=now)
        loads += len(story.refresh(now))
        now += 0.1

    assert 0.9 * 5 * 60 <= loads + 5 <= 5 * 60 + 5


def test_leaving_gives_back_what_was_tracked():
    story = Priced().known(A, B)
    assert story.market.tracked == 2
    story.engine.leave()

    assert story.market.tracked == 0
