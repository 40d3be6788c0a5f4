"""A fleet in virtual time: all rates together never exceed the budget, whatever happens to owners and their calls."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from random import Random

import pytest
from stories.shell import in_virtual_time
from suite.spending import worst

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.shares import CLAIM_LIFE, EXCHANGE_EVERY, YOUTH, Owner
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.unsound import Unsound
from cacheupdater.ports import Offer
from cacheupdater.price.shell.partition_shares import Whole
from cacheupdater.price.shell.sharing import Purse, Sharing
from cacheupdater.testing.memory_fleet import MemoryFleet, MemoryRecords
from cacheupdater.testing.recording_observer import RecordingObserver

RATE, BURST = 100.0, 200.0
SETTLED = YOUTH + 4 * EXCHANGE_EVERY


class Owned:
    """One owner: its source, its part of the fleet, and its running task."""

    def __init__(self, records, *, price=None, rate=RATE, burst=BURST):
        loop = asyncio.get_running_loop()
        self.source = Source("main", Bucket(rate, burst, now=loop.time()), concurrency=5)
        self.bucket = self.source.bucket
        self.fleet = MemoryFleet(records)
        self.stirred = 0
        self.market = None if price is None else Priced(price, self)
        self.sharing = Sharing(
            Purse(
                "source main",
                "main",
                self.source.bucket,
                Whole(self.source.bucket.rate, self.source.bucket.burst),
            ),
            self.market,
            self.fleet,
            wake_up=self.wake_up,
            notices=Notices(asyncio.get_running_loop().time),
            unsound=Unsound(RecordingObserver()),
        )
        self.task = loop.create_task(self.sharing.run())

    def wake_up(self):
        self.stirred += 1

    @property
    def rate(self):
        """What it may spend."""
        return self.bucket.rate if asyncio.get_running_loop().time() < self.bucket.until else 0.0

    async def die(self):
        """Without a word."""
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


class Priced:
    """A price that falls with the share, as in an economy where the rows that do most are loaded first."""

    def __init__(self, need, owned):
        self.need, self._owned = need, owned

    @property
    def scarcity(self):
        return self.need / max(self._owned.rate, 1.0)


@pytest.fixture
def story():
    class Story:
        def __init__(self):
            self.records = MemoryRecords(asyncio.get_running_loop().time)
            self.owners = []

        def join(self, **named):
            self.owners.append(Owned(self.records, **named))
            return self.owners[-1]

        async def end(self):
            for each in self.owners:
                await each.die()

    return Story


@in_virtual_time
async def test_a_lone_owner_has_all_of_the_budget_after_the_records_youth(story):
    story = story()
    alone = story.join()
    await asyncio.sleep(YOUTH / 2)
    assert alone.bucket.rows(asyncio.get_running_loop().time()) == 0
    assert alone.bucket.when(1) == float("inf")

    await asyncio.sleep(YOUTH)
    assert (alone.rate, alone.bucket.burst) == (RATE, BURST)
    assert alone.stirred >= 1
    await story.end()


@in_virtual_time
async def test_without_prices_all_have_the_same_and_a_newcomer_is_made_room_for(story):
    story = story()
    first = story.join()
    await asyncio.sleep(SETTLED)
    others = [story.join(), story.join()]
    await asyncio.sleep(2.5 * EXCHANGE_EVERY)

    assert [each.rate for each in story.owners] == pytest.approx([RATE / 3] * 3)
    assert first.bucket.burst == pytest.approx(BURST / 3)
    await others[0].sharing.leave()
    await others[0].die()
    await asyncio.sleep(1.5 * EXCHANGE_EVERY)
    assert first.rate == pytest.approx(RATE / 2)
    await story.end()


@in_virtual_time
async def test_rows_go_where_they_do_most(story):
    story = story()
    modest, needy = story.join(price=100.0), story.join(price=300.0)
    await asyncio.sleep(400.0)

    assert needy.rate / modest.rate == pytest.approx(3.0, rel=0.1)
    assert needy.rate + modest.rate == pytest.approx(RATE, rel=0.02)
    await story.end()


@in_virtual_time
async def test_the_share_of_a_dead_owner_is_taken_over_when_its_claim_has_run_out(story):
    story = story()
    dead, heir = story.join(), story.join()
    await asyncio.sleep(SETTLED)
    await dead.die()
    before = heir.rate
    await asyncio.sleep(CLAIM_LIFE - EXCHANGE_EVERY - 1.0)
    assert heir.rate == before
    await asyncio.sleep(2 * EXCHANGE_EVERY + 2.0)
    assert heir.rate == RATE
    await story.end()


@in_virtual_time
async def test_who_hears_nothing_stops_before_others_may_take_its_share(story, caplog):
    caplog.set_level(logging.INFO, logger="cacheupdater")  # whatever the command line set in this process
    story = story()
    cut_off, other = story.join(), story.join()
    await asyncio.sleep(SETTLED)
    cut_off.fleet.down = "after"  # the worst: its calls arrive, and it does not know
    await asyncio.sleep(CLAIM_LIFE)
    assert cut_off.rate == 0.0
    assert cut_off.bucket.level(asyncio.get_running_loop().time()) == 0.0
    assert other.rate <= RATE

    cut_off.fleet.down = ""
    await asyncio.sleep(2 * EXCHANGE_EVERY)
    assert cut_off.rate == pytest.approx(RATE / 2)
    messages = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(messages) == 1
    assert "nothing is loaded" in messages[0]
    assert any("fleet_down main: over after" in each.getMessage() for each in caplog.records)
    await story.end()


@pytest.mark.parametrize("replaced", [False, True], ids=["others live", "the other is a newcomer"])
@in_virtual_time
async def test_a_lost_record_gives_nobody_the_share_of_one_that_is_cut_off(story, replaced):
    """The others cannot hear of it; a newcomer could not even tell the record from a new fleet's."""
    story = story()
    cut_off, other = story.join(), story.join()
    await asyncio.sleep(SETTLED)
    cut_off.fleet.down = "before"
    story.records.lose()
    if replaced:
        await other.die()
        story.owners.remove(other)
        other = story.join()
    for _ in range(int(2 * CLAIM_LIFE / 0.1)):
        assert sum(each.rate for each in story.owners) <= RATE + 1e-9
        await asyncio.sleep(0.1)
    assert cut_off.rate == 0.0
    assert other.rate == RATE
    await story.end()


@in_virtual_time
async def test_less_budget_is_obeyed_at_once_and_more_of_it_is_asked_for(story):
    story = story()
    both = [story.join(), story.join()]
    await asyncio.sleep(SETTLED)
    now = asyncio.get_running_loop().time()
    for each in both:
        each.sharing.change(RATE / 2, BURST, now=now)
    assert sum(each.rate for each in both) <= RATE / 2
    assert sum(each.bucket.burst for each in both) <= BURST + 1e-9
    for each in both:
        each.sharing.change(RATE * 2, BURST, now=now)
    await asyncio.sleep(2 * EXCHANGE_EVERY)
    assert [each.rate for each in both] == pytest.approx([RATE, RATE])
    await story.end()


@in_virtual_time
async def test_a_share_that_cannot_save_up_a_row_is_not_used(story):
    """Its bucket would round up to one row, beyond the burst of all. Nobody else goes without it either."""
    story = story()
    greedy = MemoryFleet(story.records)
    offer = Offer(4.0, 0.0, 0.0, Owner(1.0, 3.5))
    await greedy.exchange("main", offer)
    await asyncio.sleep(YOUTH)
    assert (await greedy.exchange("main", offer._replace(wanted=3.5))).rate == 3.5
    other = story.join(rate=4.0, burst=4.0)
    await asyncio.sleep(3.0)
    assert story.records.claimed("main") == 3.5
    assert other.rate == 0.0
    await greedy.exchange("main", offer._replace(wanted=2.5, held=2.5))
    await asyncio.sleep(3.0)
    assert other.rate == pytest.approx(1.5)
    await story.end()


@pytest.mark.parametrize(
    ("rate", "burst", "round_"),
    [
        (10.0, 1.0, 100.0),
        pytest.param(10.0, 10.0, 40.0, marks=pytest.mark.prove),
        pytest.param(10.0, 3.5, 60.0, marks=pytest.mark.prove),
    ],
)
@in_virtual_time
async def test_more_owners_than_rows_of_burst_take_turns(story, rate, burst, round_):
    """The hole that was: 48 owners of a burst of 10 rows saved up a row each, and had 48 rows at once."""
    story, draw, clock = story(), Random(48), asyncio.get_running_loop().time
    owners, spent = [], []
    for _ in range(48):
        owners.append(story.join(rate=rate, burst=burst))
        await asyncio.sleep(draw.random() / 10)
    await asyncio.sleep(60.0)  # nobody has anything to do
    began, last = clock(), dict.fromkeys(owners, clock())
    while clock() < began + 4 * round_:
        await asyncio.sleep(0.05)
        now = clock()
        for each in owners:
            if rows := each.bucket.rows(now):
                each.bucket.take(rows)
                spent.append((now, rows))
                assert now < last[each] + round_, "it waits for its turn for too long"
                last[each] = now
        assert sum(each.rate for each in owners) <= rate * (1.0 + 1e-6)
    assert min(last.values()) > began + 3 * round_
    assert worst(spent, rate) <= burst + 1e-6
    assert sum(rows for _, rows in spent) > 0.6 * rate * 4 * round_
    await story.end()


@in_virtual_time
async def test_owners_that_die_while_they_wait_hold_up_nobody_for_long(story):
    story = story()
    for _ in range(8):
        story.join(rate=4.0, burst=2.0)
        await asyncio.sleep(0.1)
    await asyncio.sleep(30.0)
    for each in [each for each in story.owners if not each.rate]:
        await each.die()
    await asyncio.sleep(CLAIM_LIFE + EXCHANGE_EVERY)
    assert sum(each.rate for each in story.owners if not each.task.cancelled()) == pytest.approx(4.0)
    await story.end()


@pytest.mark.parametrize("seed", range(30))
def test_no_window_sees_more_than_the_budget_and_one_burst(seed, story):
    """Owners come, die, leave, are cut off; prices move; the record is lost. Each spends whatever it can."""
    in_virtual_time(_chaos)(seed, story)


async def _chaos(seed, story):
    draw, story = Random(seed), story()
    clock = asyncio.get_running_loop().time
    spent = []
    for _ in range(1200):
        await asyncio.sleep(0.1)
        _happen(draw, story)
        now = clock()
        for each in story.owners:
            if not each.task.cancelled():
                rows = each.bucket.rows(now) if draw.random() < 0.7 else 0
                each.bucket.take(rows)
                spent.append((now, rows))
        assert sum(each.rate for each in story.owners if not each.task.cancelled()) <= RATE + 1e-6
    await story.end()
    total, low = 0.0, 0.0  # spent - RATE * t never rises by more than BURST above its lowest value
    last = spent[0][0]
    for now, rows in spent:
        total -= RATE * (now - last)
        low = min(low, total)
        total += rows
        assert total - low <= BURST + 1e-6
        last = now
    assert sum(rows for _, rows in spent) > 0.2 * RATE * last


def _happen(draw, story):
    living = [each for each in story.owners if not each.task.cancelled()]
    what = draw.random()
    if len(living) < 4 and (not living or what < 0.02):
        story.join(price=draw.choice((10.0, 100.0, 1000.0)))
    elif what < 0.026:
        draw.choice(living).task.cancel()
    elif what < 0.05:
        draw.choice(living).fleet.down = draw.choice(("", "", "before", "after"))
    elif what < 0.06:
        draw.choice(living).market.need *= draw.choice((0.1, 10.0))
    elif what < 0.062 and all(not each.fleet.down for each in living):
        story.records.lose()
