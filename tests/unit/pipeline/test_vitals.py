"""Signs that an updater does nothing useful: each has a log line at its beginning and its end."""

import asyncio
import logging
from functools import partial

import pytest
from stories.shell import in_virtual_time

from cacheupdater import masking
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.namespace import Namespace
from cacheupdater.pipeline.looking import LOOKS_A_SECOND
from cacheupdater.pipeline.naming import named
from cacheupdater.pipeline.notices import QUIET_S, Notices
from cacheupdater.pipeline.vitals import ALONE_S, Vitals
from cacheupdater.pipeline.whereabouts import ROUND
from cacheupdater.ports import Found
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.patterns import Pattern

SOURCE = Source("shop", Bucket(100.0, 100.0, now=0.0), concurrency=1)
SPACE = Namespace("product", Pattern.compile("product:{id:int}"), SOURCE)
PRODUCTS = [b"product:%d" % n for n in range(1000)]


class Redis:
    """What readers find, by key; everything else is elsewhere."""

    def __init__(self, ages):
        self.ages = ages
        self.looked = []

    async def look(self, keys):
        self.looked += keys
        return [Found(key in self.ages, self.ages.get(key)) for key in keys]


class Process:
    def __init__(self, *, log_keys="full", draws=lambda: 0.5):
        self.observer = RecordingObserver()
        self.now = 0.0
        self.notices = Notices(lambda: self.now)
        self.vitals = Vitals(
            Keyspace([(SPACE.pattern, SPACE)]),
            observer=self.observer,
            notices=self.notices,
            random=draws,
            log_keys=log_keys,
            listens=("unix:///run/hints.sock",),
        )

    def live(self, seconds, *, clients=1, hints=0, nobodys=0):
        for _ in range(seconds):
            self.now += 1.0
            self.vitals.counted({("hints", "touch", ""): hints, ("dropped", "", "unknown"): nobodys})
            self.vitals.tick(self.now, sources={"shop": 0.0}, clients=clients)
            self.notices.tick()

    async def look(self, redis, seconds, *, keys, counts=(), kind=Kind.TOUCH, is_set=False):
        """A pack each tenth of a second."""
        pack = Hints(0, kind, keys, counts, is_set=is_set)
        looking = asyncio.ensure_future(self.vitals.run(redis))
        for second in range(seconds):
            for _ in range(10):
                self.vitals.hear(pack)
                await asyncio.sleep(0.1)
            self.now = float(second + 1)
            self.vitals.tick(asyncio.get_running_loop().time(), sources={}, clients=1)
        looking.cancel()

    @property
    def standing(self):
        return {each.event for each in self.notices.standing()}


def test_nobody_connected_for_half_a_minute_is_said_until_somebody_is(caplog):
    caplog.set_level(logging.INFO, logger="cacheupdater")
    process = Process()
    process.live(int(ALONE_S), clients=0)
    assert process.standing == set()
    process.live(5, clients=0)
    assert process.standing == {"no_client"}
    process.live(int(QUIET_S) + 1, clients=1)
    assert process.standing == set()
    assert len(caplog.messages) == 2
    assert "no client is connected to unix:///run/hints.sock: does the application" in caplog.messages[0]
    assert masking.text(caplog.messages[0]) == caplog.messages[0], "an address without a password is shown"


def test_misses_that_wait_for_the_absent_bucket_are_said_and_counted_until_its_debt_is_paid(caplog):
    caplog.set_level(logging.INFO, logger="cacheupdater")
    process, bucket = Process(), SPACE.absent_bucket
    process.live(1)
    assert ("unseen_waiting", "product") not in process.observer.levels
    bucket.waiting = 300
    bucket.charge(200, process.now)
    process.live(5)
    assert process.standing == {"absent"}
    assert process.observer.levels["unseen_waiting", "product"] == 300.0
    assert "what missing.share saves for them, 10 a second: 300 misses" in caplog.messages[0]
    bucket.waiting = 0
    process.live(int(QUIET_S) + 1)
    assert process.standing == set()
    assert process.observer.levels["unseen_waiting", "product"] == 0.0
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("name", ["product", "price"], ids=["the same name", "removed"])
def test_a_reload_ends_the_trouble_of_a_namespace_whose_misses_wait_no_more(name):
    process, bucket = Process(), SPACE.absent_bucket
    bucket.waiting = 300
    bucket.charge(200, process.now)
    process.live(3)
    assert process.standing == {"absent"}
    new = Namespace(name, Pattern.compile("product:{id:int}"), SOURCE)
    process.vitals.follow(Keyspace([(new.pattern, new)]))
    process.live(int(QUIET_S) + 1)
    assert process.standing == set()
    assert process.observer.levels["unseen_waiting", "product"] == 0.0
    bucket.waiting = 0


def test_clients_that_never_send_a_hint_are_said_until_one_comes(caplog):
    caplog.set_level(logging.INFO, logger="cacheupdater")
    process = Process()
    process.live(int(ALONE_S))
    assert process.standing == set()
    process.live(5)
    assert process.standing == {"no_hint"}
    assert "do their keys begin with product:?" in caplog.messages[0]
    process.vitals.hear(Hints(0, Kind.TOUCH, [b"product:1"], ()))
    process.live(int(QUIET_S) + 1)
    assert process.standing == set()


def test_an_application_that_has_paused_is_not_told_of():
    process = Process()
    process.vitals.hear(Hints(0, Kind.TOUCH, [b"product:1"], ()))
    process.live(1000)
    assert process.standing == set()


def test_where_clients_cannot_be_counted_none_is_missed():
    process = Process()
    process.live(100, clients=None)
    assert process.standing == set()


@in_virtual_time
async def test_the_share_of_hints_of_nobody_is_said_with_examples_as_the_configuration_allows():
    for log_keys, shown in (
        ("full", "such as lock:7"),
        ("hash", f"such as {named(b'lock:7', 'hash')}"),
        ("off", ""),
    ):
        process = Process(log_keys=log_keys)
        await process.look(Redis({}), 1, keys=[b"lock:7"])
        process.live(2, hints=100, nobodys=25)
        (told,) = process.notices.standing()
        assert told.event == "nobodys"
        assert told.text.startswith("25.0% of 200 hints in a minute are of no namespace")
        assert shown in told.text
        assert ("lock:7" in told.text) == (log_keys == "full")
        assert ("such as" in told.text) == (log_keys != "off")
        assert ("log_keys: full" in told.text) == (log_keys != "full")
        assert process.observer.levels["nobodys_share", ""] == 0.25
        process.live(61 + int(QUIET_S), hints=100)
        assert process.standing == set()


def test_a_share_of_nobody_near_the_limit_does_not_come_and_go():
    """Where one key in a hundred is nobody's, the warning began and ended several times a minute."""
    process = Process()
    a_minute = partial(process.live, 61, clients=None, hints=1000)  # None: no other warning is about clients
    a_minute(nobodys=9)
    assert process.standing == set()
    a_minute(nobodys=11)
    (told,) = process.notices.standing()
    for nobodys in (8, 12, 8, 12):
        a_minute(nobodys=nobodys)
        (still,) = process.notices.standing()
        assert (still.event, still.began) == ("nobodys", told.began)
        assert (still.ended, still.restless) == (None, False)
    a_minute(nobodys=4)
    assert process.standing == set()


class Filled(Redis):
    """What is asked for is there from then on: the updater has loaded it."""

    async def look(self, keys):
        found = await super().look(keys)
        self.ages |= dict.fromkeys(keys, 0.0)
        return found


@in_virtual_time
async def test_keys_that_readers_find_and_our_redis_does_not_have_are_said():
    """`cache: …/1` where the application reads /0: all looked well, and readers got nothing new."""
    process = Process()
    await process.look(Filled({}), 200, keys=[b"product:%d" % n for n in range(30)])
    assert process.standing == {"elsewhere"}
    assert process.observer.levels["elsewhere", ""] == 1.0


@in_virtual_time
async def test_keys_that_applications_set_and_our_redis_does_not_have_are_said():
    """The cache was empty when the updater started, so no reader found anything before the updater had a copy of it."""
    process = Process()
    await process.look(Filled({}), 200, keys=PRODUCTS[:30], kind=Kind.CHANGE, is_set=True)
    assert process.standing == {"elsewhere"}


@in_virtual_time
@pytest.mark.parametrize(("here", "is_set"), [(True, True), (False, False)], ids=["set", "deleted"])
async def test_keys_that_an_application_sets_or_deletes_in_our_redis_are_no_trouble(here, is_set):
    process, keys = Process(), PRODUCTS[:30]
    redis = Redis(dict.fromkeys(keys) if here else {})
    await process.look(redis, 10, keys=keys, kind=Kind.CHANGE, is_set=is_set)
    assert process.standing == set()


class Swept(Redis):
    """A feed has removed all values, which readers have found just before."""

    async def look(self, keys):
        return [Found(here=False, age=None, removed=True) for _ in keys]


@in_virtual_time
async def test_keys_whose_values_were_removed_just_after_a_read_are_no_sign_of_another_redis():
    process = Process()
    await process.look(Swept({}), 200, keys=[b"product:%d" % n for n in range(30)])
    assert process.standing == set()


@in_virtual_time
async def test_it_is_over_when_values_of_others_are_found():
    process, keys = Process(), [b"product:%d" % n for n in range(30)]
    await process.look(Filled({}), 2, keys=keys)
    await process.look(Redis(dict.fromkeys(keys, None)), 70, keys=keys)
    process.now += 2 * QUIET_S
    process.notices.tick()
    assert process.standing == set()


@in_virtual_time
@pytest.mark.parametrize("age", [None, 500.0])
async def test_a_few_that_ended_between_are_no_trouble(age):
    process = Process()
    here = {b"product:%d" % n: age for n in range(70)}
    await process.look(Redis(here), 3, keys=[b"product:%d" % n for n in range(100)])
    assert process.standing == set()


@in_virtual_time
async def test_whereabouts_stay_within_their_cost():
    process, redis = Process(), Redis({})
    looking = asyncio.ensure_future(process.vitals.whereabouts.run(redis))
    for second in range(59):
        for _ in range(10):
            process.vitals.whereabouts.hear(Hints(0, Kind.TOUCH, PRODUCTS, ()))
            process.vitals.whereabouts.hear(Hints(0, Kind.MISS, [b"product:9"], ()))
            await asyncio.sleep(0.1)
        process.vitals.whereabouts.tick(float(second))
    looking.cancel()
    assert ROUND <= len(redis.looked) <= 2 * ROUND


@in_virtual_time
async def test_ages_are_measured_as_often_as_keys_are_read_and_within_their_cost():
    """Nine reads of ten are of the value of 8 s."""
    lots = iter([n * 0.37 % 1.0 for n in range(10_000)])
    process, redis = Process(draws=lots.__next__), Redis({b"product:1": 8.0, b"product:2": 1.0})
    await process.look(redis, 60, keys=[b"product:1", b"product:2"], counts=[900, 100])
    ages = process.observer.measured["read_age_seconds", "product"]
    assert len(ages) <= 60 * LOOKS_A_SECOND
    assert len(ages) >= 30 * LOOKS_A_SECOND / 2  # ten packs a second are not more than ten looks
    assert ages.count(8.0) / len(ages) == pytest.approx(0.9, abs=0.03)


@in_virtual_time
async def test_all_reads_are_looked_at_evenly_where_there_are_many_packs():
    process, redis = Process(), Redis({b"product:1": 1.0})
    looking = asyncio.ensure_future(process.vitals.looking.run(redis))
    for _ in range(10):
        for _ in range(1000):
            process.vitals.looking.hear(Hints(0, Kind.TOUCH, [b"product:1"], ()))
            await asyncio.sleep(0.001)
        process.vitals.looking.tick()
    looking.cancel()
    assert len(redis.looked) == pytest.approx(10 * LOOKS_A_SECOND, rel=0.05)


def test_a_source_that_fails_is_down_and_its_silence_grows():
    process = Process()
    process.vitals.loaded("shop", 0.0)
    process.live(3)
    levels = process.observer.levels
    assert (levels["source_up", "shop"], levels["source_silence_seconds", "shop"]) == (1.0, 3.0)
    process.notices.trouble("load_failed", "shop", "no answer")
    process.live(2)
    assert (levels["source_up", "shop"], levels["source_silence_seconds", "shop"]) == (0.0, 5.0)
    process.notices.over("load_failed", "shop")
    process.vitals.loaded("shop", process.now)
    process.live(1)
    assert (levels["source_up", "shop"], levels["source_silence_seconds", "shop"]) == (1.0, 1.0)


@in_virtual_time
async def test_keys_of_nobody_are_named_at_debug_and_only_as_allowed(caplog):
    caplog.set_level(logging.DEBUG, logger="cacheupdater")
    for log_keys, said in (("full", ["lock:7"]), ("hash", [named(b"lock:7", "hash")]), ("off", [])):
        caplog.clear()
        await Process(log_keys=log_keys).look(Redis({}), 2, keys=[b"lock:7"])
        assert [line.rpartition(" ")[2] for line in caplog.messages if "no namespace takes" in line] == said


@in_virtual_time
async def test_no_more_than_three_keys_of_nobody_are_examples():
    process = Process(log_keys="full")
    for number in range(10):
        await process.look(Redis({}), 1, keys=[b"lock:%d" % number])
    process.live(2, hints=1000, nobodys=1000)
    [told] = process.notices.standing()
    assert told.text.endswith("such as lock:7, lock:8, lock:9")
