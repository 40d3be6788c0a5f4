"""Stories of the policy `price`: which loads it asks for, which not, and at what cost."""

from __future__ import annotations

import numpy as np
import pytest
from stories.engine import namespace
from stories.price import Desk, World, keys, priced, source

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.hints import Kind
from cacheupdater.core.policy import Loaded
from cacheupdater.price.meter import AGED, CHANGES, LOADS, READS
from cacheupdater.price.table import LOADED, STATUS

A, B, C = b"p:1", b"p:2", b"p:3"


def teach(desk, key, *, changes, loads=20, every=10.0):
    """Read once a second; loaded so often, and found changed or not."""
    for turn in range(loads):
        for second in range(int(every)):
            desk.read(key, at=turn * every + second)
        desk.load(key, at=(turn + 1) * every, changed=changes)
    return loads * every


def cheapest(desk, key, at):
    """The dearest price at which this read is still worth a load."""
    low, high = 1e-3, 1e6
    for _ in range(40):
        middle = (low * high) ** 0.5
        desk.market.price = middle
        desk.policy.spaces.refresh()
        row = desk.policy.table.find([key])
        state, times = desk.policy.table.state[row].copy(), desk.policy.table.times[row].copy()
        due = desk.policy.table.due[row].copy()
        asked = desk.read(key, at=at)
        desk.policy.table.state[row], desk.policy.table.times[row] = state, times
        desk.policy.table.due[row] = due
        low, high = (middle, high) if asked else (low, middle)
    return low


# --- who is asked for ------------------------------------------------------------------------------------


def test_key_that_changes_is_worth_more_than_one_that_never_does():
    desk = Desk()
    end = max(teach(desk, A, changes=True), teach(desk, B, changes=False))

    assert cheapest(desk, A, end + 10.0) > 5 * cheapest(desk, B, end + 10.0)


def test_a_read_rate_is_known_once_it_was_heard_for_minutes():
    """Misses that wait are put in order by it. A key that was met a moment ago must not look like one that is always read."""
    desk = Desk()
    for second in range(600):
        desk.read(A, B, at=float(second), counts=[20, 1])
    desk.read(C, at=600.0)
    often, seldom, new, unknown = desk.policy.read_rates([A, B, C, b"p:9"], 600.0)

    assert often == pytest.approx(20.0, rel=0.2)
    assert seldom == pytest.approx(1.0, rel=0.2)
    assert (round(new, 2), unknown) == (0.0, 0.0)


def test_key_that_is_read_more_is_worth_more():
    desk = Desk()
    for second in range(200):
        desk.read(A, B, at=float(second), counts=[20, 1])
    desk.load(A, B, at=200.0, changed=True)

    assert cheapest(desk, A, 230.0) > 5 * cheapest(desk, B, 230.0)


def test_key_that_was_just_loaded_is_never_asked_for_before_the_gap():
    desk = Desk(gap=0.5)
    desk.market.price = 1e-9
    desk.policy.spaces.refresh()
    teach(desk, A, changes=True)

    assert desk.read(A, at=200.4) == []
    assert desk.read(A, at=200.6) == [A]


def test_stranger_is_taken_for_a_key_like_any_other_whose_turn_it_may_be():
    """Nobody knows how old its value is: read often it is asked for soon, at a high price it waits."""
    desk = Desk()
    desk.market.price = 1e6
    desk.policy.spaces.refresh()
    assert desk.read(A, at=0.0, counts=[5]) == []
    desk.market.price = 1e-3
    desk.policy.spaces.refresh()

    assert desk.read(B, at=1.0, counts=[5]) == [B]


def test_key_that_nobody_has_just_read_is_asked_for_when_its_next_reads_are_worth_it():
    desk = Desk()
    end = teach(desk, A, changes=True)
    asked = []
    for at in np.arange(end, end + 60.0, 0.02):
        asked += desk.tick(at)

    assert asked[0] == A
    assert desk.policy.wake() == pytest.approx(end + 60.0, abs=0.05)


@pytest.mark.prove
def test_budget_goes_to_keys_that_are_read_and_change():
    """Hot and changing, hot and static, cold and changing: a third of the keys gets nearly all the rows."""
    number = 90
    mu = np.repeat([5.0, 5.0, 0.02], 30)
    rate = np.repeat([0.1, 0.0, 0.1], 30)
    world = World(Desk(rate=8.0), keys(number), mu, rate).play(300, step=0.1).play(200, step=0.1)
    hot, static, cold = (world.loads[part].sum() for part in (slice(0, 30), slice(30, 60), slice(60, 90)))

    assert hot > 0.7 * world.rows
    assert static < 0.15 * world.rows
    assert cold < 0.15 * world.rows


@pytest.mark.prove
def test_policy_is_fresher_than_one_interval_for_all_keys_at_the_same_rows():
    """N keys at B rows a second: an interval of N / B for everybody leaves 1 - (1 - e**-x) / x of the reads stale."""
    number, budget = 300, 15.0
    rng = np.random.default_rng(2)
    mu = 150.0 / np.arange(1, number + 1) / 6.3
    rate = rng.permutation(np.exp(rng.normal(-4.6, 1.5, number)))
    world = World(Desk(rate=budget), keys(number), mu, rate).play(500, step=0.2).play(400, step=0.2)
    x = rate * number / budget
    even = float((mu * (1 - -np.expm1(-x) / x)).sum() / mu.sum())

    assert world.rows / 400 == pytest.approx(budget, rel=0.1)
    assert world.share < 0.7 * even


# --- room ------------------------------------------------------------------------------------------------


def test_no_more_is_asked_for_than_the_bucket_can_pay_minus_what_is_due():
    desk = Desk(rate=100.0)
    many = keys(500)
    for at in range(1, 60):
        desk.read(*many, at=float(at), counts=[50] * 500)
        desk.load(*many, at=float(at), changed=True)
    desk.source.bucket.take(desk.source.bucket.level(60.0) - 30.0)
    desk.source.due = 12.0
    desk.market.price = 1e-3
    desk.policy.spaces.refresh()
    asked = desk.read(*many, at=60.2, counts=[1000 if place < 10 else 1 for place in range(500)])

    assert desk.source.bucket.level(60.2) == pytest.approx(50.0)
    assert 30 <= len(asked) <= 38 + 5  # the few that are drawn to be measured are not asked about their worth
    assert set(many[:10]) <= set(asked)


@pytest.mark.parametrize("rate", [5.0, 50.0])
def test_budget_is_never_exceeded_in_any_window(rate):
    world = World(Desk(rate=rate), keys(200), np.full(200, 2.0), np.full(200, 0.05)).play(90, step=0.1)
    bucket = world.desk.source.bucket
    times, rows = np.array(world.spent).T
    total = np.concatenate(([0.0], np.cumsum(rows)))
    for window in (1.0, 10.0, 60.0):
        first = np.searchsorted(times, times - window)
        assert (total[1:] - total[first]).max() <= bucket.rate * window + bucket.burst + 1e-6


def test_quota_bounds_what_its_namespace_asks_for():
    db = source(1_000.0)
    quota = Bucket(5.0, 5.0, now=-1.0)
    desk = Desk(priced("p", at=db, quota=quota), priced("q", at=db))
    p, q = keys(100), keys(100, "q")
    desk.read(*p, *q, at=0.0, counts=[50] * 200)
    desk.load(*p, *q, at=1.0, changed=True)
    desk.market.price = 1e-3
    desk.policy.spaces.refresh()
    asked = desk.read(*p, *q, at=31.0, counts=[50] * 200)

    assert sum(key.startswith(b"p") for key in asked) <= 5 + 5
    assert sum(key.startswith(b"q") for key in asked) == 100


# --- what people set -------------------------------------------------------------------------------------


def test_worth_multiplies():
    db = source()
    desk = Desk(priced("p", at=db), priced("q", at=db, worth=10.0))
    for second in range(100):
        desk.read(A, b"q:1", at=float(second))
    desk.load(A, b"q:1", at=100.0, changed=True)

    assert cheapest(desk, b"q:1", 130.0) == pytest.approx(10.0 * cheapest(desk, A, 130.0), rel=0.01)


def test_cheaper_namespace_gets_more_rows_where_time_is_the_budget():
    db = source(100.0, timed=True)
    p, q = priced("p", at=db), priced("q", at=db)
    for _ in range(200):
        p.cost.settle(1, 0.0, 0.5)
        q.cost.settle(1, 0.0, 8.0)
    db.bucket.take(-db.bucket.spent)
    desk = Desk(p, q)
    for second in range(100):
        desk.read(A, b"q:1", at=float(second))
    desk.load(A, b"q:1", at=100.0, changed=True)

    assert cheapest(desk, A, 130.0) == pytest.approx(16.0 * cheapest(desk, b"q:1", 130.0), rel=0.01)


def test_row_that_costs_more_than_a_full_bucket_is_still_loaded_now_and_then():
    """A query of half a second and a budget of 300 ms/s: the bucket pays it in advance, so it may be asked for."""
    db = source(300.0, timed=True)
    p = priced("p", at=db)
    for _ in range(200):
        p.cost.settle(1, 0.0, 500.0)
    db.bucket.take(-db.bucket.spent)
    desk = Desk(p)
    desk.market.price = 1e-3
    asked = [desk.read(A, at=float(at), counts=[1000]) for at in range(1, 60)]

    assert [A] in asked


@pytest.mark.prove
def test_no_value_that_is_read_gets_older_than_its_greatest_age_while_the_budget_allows():
    db = source(30.0)
    world = World(Desk(priced("p", at=db, max_age=20.0)), keys(200), np.full(200, 0.3), np.zeros(200))
    world.play(120).play(120)

    assert world.oldest <= 20.1
    assert world.desk.market.meter.total[AGED].sum() == 0.0


@pytest.mark.prove
def test_reads_of_values_that_are_too_old_are_counted_where_the_budget_does_not_allow():
    db = source(2.0)
    world = World(Desk(priced("p", at=db, max_age=20.0)), keys(200), np.full(200, 0.3), np.zeros(200))
    world.play(200)

    assert world.rows <= 2.0 * 200 + 2.0
    assert world.desk.market.meter.total[AGED].sum() > 1_000


# --- who is not priced -----------------------------------------------------------------------------------


def test_keys_of_fixed_namespaces_and_of_nobody_pass_as_they_came():
    db = source()
    desk = Desk(priced("p", at=db), namespace("f", source=db))
    desk.market.price = 1e6
    desk.policy.spaces.refresh()
    asked = desk.read(b"f:1", A, b"zzz", b"f:2", at=0.0)

    assert sorted(asked) == [b"f:1", b"f:2", b"zzz"]
    assert desk.policy.hold(desk.namespaces[1]) == 5.0
    assert desk.policy.hold(desk.namespaces[0]) == 0.1
    assert len(desk.policy.table) == 1


def test_two_sources_have_two_prices():
    one, two = source(100.0), source(100.0)
    desk = Desk(priced("p", at=one), priced("q", at=two))
    for market in desk.markets.values():
        market.price = 1e6
    desk.policy.spaces.refresh()
    for second in range(60):
        desk.read(A, b"q:1", at=float(second))
    desk.markets[one].price, desk.markets[two].price = 1e-3, 1e6
    desk.policy.spaces.refresh()

    assert desk.read(A, b"q:1", at=61.0) == [A]
    assert desk.markets[two].meter.total[READS].tolist() == [61.0]


# --- the table -------------------------------------------------------------------------------------------


def test_key_is_forgotten_when_nobody_reads_it_for_long():
    desk = Desk()
    desk.read(A, at=0.0)
    for at in np.arange(0.0, 4_000.0, 1.0):
        desk.tick(at)
        desk.load(A, at=at)

    assert len(desk.policy.table) == desk.market.tracked == 0
    assert desk.policy.wake() == np.inf


def test_full_table_makes_room_for_newcomers_and_keeps_whoever_is_read():
    desk = Desk(learned=1_000)
    hot = keys(50)
    for turn in range(300):
        at = turn * 0.5
        asked = desk.read(*hot, at=at, counts=[20] * 50)
        asked += desk.read(*(b"p:%d" % (1_000 + turn * 40 + each) for each in range(40)), at=at + 0.01)
        for step in range(5):
            asked += desk.tick(at + 0.1 * step)
        desk.load(*dict.fromkeys(asked), at=at + 0.45)

    table = desk.policy.table
    assert 500 < len(table) <= 1_000
    assert (table.find(hot) >= 0).all()
    assert (table.find([b"p:%d" % (1_000 + 299 * 40 + each) for each in range(40)]) >= 0).any()
    assert desk.market.tracked == len(table)


@pytest.mark.campaign
def test_load_that_never_comes_is_asked_for_again():
    desk = Desk()
    end = teach(desk, A, changes=True)
    asked = []
    for at in np.arange(end, end + 120.0, 0.1):
        asked += [at] * len(desk.tick(at) + desk.read(A, at=at))

    assert 3 <= len(asked) <= 13
    assert np.diff(asked).min() >= 9.9


def test_pack_that_names_a_key_twice_counts_its_reads_together_and_asks_once():
    desk, other = Desk(), Desk()
    for at in range(1, 100):
        desk.read(A, A, A, B, at=float(at), counts=[1, 2, 3, 1])
        other.read(A, B, at=float(at), counts=[6, 1])
        for each in (desk, other):
            each.load(A, B, at=at + 0.5)
    same = desk.policy.table.state[:2] == other.policy.table.state[:2]

    assert same.all()
    assert desk.read(A, A, at=160.0, counts=[500, 500]) == [A]
    assert len(desk.policy.table) == 2


def test_partition_that_leaves_gives_back_what_it_tracked():
    first = Desk()
    second = Desk(*first.namespaces, market=first.market)
    first.read(*keys(10), at=0.0)
    second.read(*(b"p:%d" % each for each in range(20, 25)), at=0.0)
    assert first.market.tracked == 15
    second.policy.leave()

    assert first.market.tracked == 10


def test_row_that_does_not_exist_is_forgotten():
    desk = Desk()
    desk.read(A, B, at=0.0)
    desk.policy.on_loaded(Loaded(Kind.TOUCH, [A, B], [True, False], 1.0, (), [A]), 1.0)

    assert desk.policy.table.find([A, B]).tolist() == [-1, 1]
    assert desk.market.tracked == 1


# --- changes and misses ----------------------------------------------------------------------------------


def test_change_of_a_key_that_is_hardly_read_or_never_can_wait_and_of_a_hot_one_cannot():
    desk = Desk()
    for at in range(300):
        desk.read(A, *([B] if at == 0 else []), at=float(at), counts=[20, 1] if at == 0 else [20])
    desk.load(A, B, at=300.0, changed=True)
    desk.market.price = 2.0
    desk.policy.spaces.refresh()

    assert set(desk.policy.on_changes([A, B, b"p:77"], 302.0)) == {B, b"p:77"}


def test_key_that_is_known_to_be_stale_is_not_asked_for_beside_the_automaton():
    desk = Desk()
    end = teach(desk, A, changes=True)
    desk.policy.on_changes([A], end + 1.0)

    assert desk.read(A, at=end + 5.0, counts=[1000]) == []
    assert [desk.tick(end + 5.0 + at * 0.02) for at in range(100)] == [[]] * 100


@pytest.mark.prove
def test_key_whose_changes_are_all_announced_needs_no_loads_in_between():
    """Half a minute of hints, and budget goes where changes come in silence."""
    number = 60
    mu, rate = np.full(number, 2.0), np.full(number, 0.05)
    world = World(Desk(rate=6.0), keys(number), mu, rate)
    announced = world.names[:30]
    before = world.version.copy()

    def announce(now):
        moved = [name for name in announced if world.version[world.place[name]] != before[world.place[name]]]
        before[:] = world.version
        if moved:
            world.announce(*moved)

    world.after = announce
    world.play(200, step=0.1).play(200, step=0.1)
    spoken, silent = world.loads[:30].sum() / 200, world.loads[30:].sum() / 200

    assert spoken == pytest.approx(30 * 0.05, rel=0.35)  # once per announcement, hardly more
    assert silent > 3.0  # the rest of the rows


def test_missed_key_is_known_as_read_and_not_asked_for_while_its_value_comes():
    desk = Desk()
    for at in range(10):
        desk.policy.on_misses([A], [5], float(at))
        assert desk.read(A, at=at + 0.5, counts=[1000]) == []
    desk.load(A, at=10.0, changed=True, kind=Kind.MISS)

    row = desk.policy.table.find([A])
    assert desk.policy.table.state[row, STATUS] == 0.0
    assert desk.market.meter.total[READS].sum() == 10_000


def test_learned_state_says_nothing_about_a_key_that_was_absent():
    """A miss always writes other bytes: that is no change."""
    desk = Desk()
    desk.read(A, at=0.0)
    before = desk.policy.table.state[0, :2].copy()
    for at in range(1, 20):
        desk.load(A, at=float(at), changed=True, kind=Kind.MISS)

    assert (desk.policy.table.state[0, :2] == before).all()


def measured(desk):
    return desk.market.sampler.measured(0.0)


def test_write_over_a_value_of_the_application_is_no_change_and_no_sign_of_a_fresh_value():
    """Its bytes may differ by their spelling alone: not even the sampler can tell whether its reader had an old value."""
    desk = Desk()
    for at in range(30):
        desk.read(A, at=float(at))
        desk.tick(at + 0.5)
    desk.market.sampler.begin(A)
    before = desk.policy.table.state[0, :2].copy()
    counted = desk.market.meter.total[[LOADS, CHANGES]].copy()
    draws = measured(desk)
    desk.load(A, at=30.0, changed=[None])

    assert (desk.policy.table.state[0, :2] == before).all()
    assert (desk.market.meter.total[[LOADS, CHANGES]] == counted).all()
    assert (measured(desk), desk.market.sampler.waits) == (draws, False)
    assert desk.policy.table.times[0, LOADED] == 30.0  # but the value is new


def test_the_next_load_after_such_a_write_counts_from_it():
    desk = Desk()
    for at in range(30):
        desk.read(A, at=float(at))
        desk.tick(at + 0.5)
    desk.load(A, at=30.0, changed=[None])
    desk.market.sampler.begin(A)
    changes = desk.market.meter.total[CHANGES].sum()
    desk.load(A, at=40.0, changed=True)

    assert desk.market.meter.total[CHANGES].sum() == changes + 1
    assert measured(desk).share > 0.0


# --- what rows say ---------------------------------------------------------------------------------------


def rate_of(desk, key):
    row = int(desk.policy.table.find([key])[0])
    return float(desk.policy.table.state[row, 0] / desk.policy.table.state[row, 1])


def test_versions_count_the_changes_that_one_bit_hides():
    db = source()
    desk = Desk(priced("p", at=db, stamp="version"))
    desk.read(A, at=0.0)
    for turn in range(1, 30):
        desk.load(A, at=turn * 10.0, changed=True, stamps=[turn * 50.0])

    assert rate_of(desk, A) == pytest.approx(5.0, rel=0.1)


def test_age_of_the_last_change_knows_a_static_key_at_its_first_load():
    db = source()
    desk = Desk(priced("p", at=db, stamp="age"))
    desk.read(A, B, at=0.0)
    desk.load(A, B, at=10.0, stamps=[30 * 86_400.0, None])

    assert rate_of(desk, A) < 1e-6 < rate_of(desk, B)


def test_what_a_row_says_is_learned_whatever_its_bytes_prove():
    db = source()
    desk = Desk(priced("p", at=db, stamp="version"))
    desk.read(A, at=0.0)
    for turn in range(1, 30):
        desk.load(A, at=turn * 10.0, changed=[None], stamps=[turn * 50.0])

    assert rate_of(desk, A) == pytest.approx(5.0, rel=0.1)


def test_version_that_goes_backwards_is_no_change():
    db = source()
    desk = Desk(priced("p", at=db, stamp="version"))
    desk.read(A, at=0.0)
    for turn in range(1, 30):
        desk.load(A, at=turn * 10.0, stamps=[100.0 - turn])

    assert rate_of(desk, A) < 0.01
    assert desk.healthy()
