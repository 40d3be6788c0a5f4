"""Redis under Sentinels, an application and a real updater: a new primary takes over by command and after a death, under load.

`live_story` says what must hold, and what Redis itself may forget. A primary that was replaced by command forgets more: for ten
seconds it still accepts writes from connected clients. Our updater looks for the primary every second. An application of
redis-py stays connected until it is thrown out, so it reads and invalidates on a server that no other client uses.
"""

from __future__ import annotations

import random
import time

import pytest
import redis
from group.rows import KEYS
from live.story import CALM_S, CLIENT, QUIET_A_SECOND, SECOND, Story, Strike, now, rounds_of
from live.updater_process import ROOT, eventually
from redis.backoff import NoBackoff
from redis.retry import Retry

from cacheupdater.adapters.writer_redis.sentinel import LOOK_EVERY_S
from cacheupdater.adapters.writer_redis.sessions import CALL_TIMEOUT_S
from cacheupdater_client import Sentinel

ROUND_S = 9.0  # a death or two, and until all is well again
LOUD = 40
ASTRAY_S = LOOK_EVERY_S + CALL_TIMEOUT_S  # the updater's look, and a write that has begun before it
STAYS_S = ASTRAY_S + 1.0  # until a replaced primary is told to copy: a sentinel takes ten seconds
CARELESS = str(ROOT / "tests" / "support" / "live" / "careless_updater.py")

pytestmark = [pytest.mark.prove, pytest.mark.timeout(0)]  # as long as it was asked to


class World:
    """The primary as the story sees it."""

    def __init__(self, sentinels):
        self.sentinels = sentinels
        self.url = sentinels.url

    def client(self, emit):
        hosts = [("127.0.0.1", each.port) for each in self.sentinels.sentinels]
        found = Sentinel(hosts, emit=emit, sentinel_kwargs=CLIENT)
        return found.master_for(self.sentinels.name, retry=Retry(NoBackoff(), 1), **CLIENT)

    def fetch(self, names):
        with redis.Redis(port=self.sentinels.primary().port) as plain:
            return plain.mget(names)


@pytest.fixture
def world(redis_sentinels):
    return World(redis_sentinels)


@pytest.fixture
def rounds(group_seconds):
    return rounds_of(group_seconds, ROUND_S)


class Harm:
    """What happens to the primary."""

    def __init__(self, story):
        self.sentinels = story.world.sentinels
        self._story = story

    def replace(self):
        """By order. The one before goes on taking writes until it is told."""
        before, began = self.sentinels.primary(), now()
        self.sentinels.failover()
        forgets_until = now() + round(ASTRAY_S * SECOND)
        time.sleep(STAYS_S)
        self._demote(before)
        self._struck(began, forgets_until)

    def kill(self):
        """The sentinels vote. The dead comes back as a copy."""
        dead, began = self.sentinels.primary(), now()
        dead.kill()
        forgets_until = now()
        eventually(lambda: self.sentinels.primary() is not dead and self._takes_writes(), within=30)
        self._struck(began, forgets_until)
        dead.start()
        self._demote(dead)

    def _struck(self, began, forgets_until):
        self._story.strikes.append(Strike(frozenset(self._story.promised), began, forgets_until, now()))

    def _takes_writes(self):
        return self.sentinels.tell(self.sentinels.primary(), "ROLE")[0] == b"master"

    def _demote(self, node):
        """As a sentinel does it: its clients have to look again."""
        self.sentinels.demote(node)
        self.sentinels.tell(node, "CLIENT", "KILL", "TYPE", "normal")
        eventually(lambda: self.sentinels.tell(node, "ROLE")[3:4] == [b"connected"])


def cast(quiet):
    """Loud keys, and quiet ones."""
    numbers = random.Random(7).sample(range(KEYS), LOUD + quiet)
    return numbers[:LOUD], numbers[LOUD:]


def test_primary_is_replaced_and_killed_under_load_and_nothing_old_stays(
    world, pg_url, updaters, rounds, record_property
):
    loud, quiet = cast(int(rounds * ROUND_S * QUIET_A_SECOND))
    story = Story(updaters, pg_url, world, loud=loud, quiet=quiet)
    with story:
        harm = Harm(story)
        for _ in range(rounds):
            harm.replace()
            time.sleep(CALM_S)
            harm.kill()
        time.sleep(CALM_S)
    story.rest()
    verdict = story.verdict()
    print(f"{len(story.strikes)} primaries replaced, every other one by its death")
    print(story.figures())
    print(verdict)
    assert verdict.faults == {}
    assert story.sent["emitted"] == verdict.hints
    story.assert_the_updater_is_well()

    story.read_again()
    story.rest()
    verdict = story.verdict()
    print(verdict)
    assert (verdict.faults, verdict.forgotten) == ({}, 0)
    assert verdict.values == len(loud) + len(quiet)
    assert story.updater.metric("refreshes_total", result="refused") > 0
    assert story.updater.metric("errors_total", reason="unavailable") > 0
    record_property("figure: redis sentinel, hints judged", verdict.hints)
    record_property("figure: redis sentinel, primaries replaced", len(story.strikes))


@pytest.mark.prove
def test_updater_without_the_fence_that_forgets_what_it_could_not_write_does_not_pass(
    world, pg_url, updaters
):
    """The control: should it pass, the judgement proves nothing."""
    loud, quiet = cast(300)
    story = Story(updaters, pg_url, world, loud=loud, quiet=quiet, program=(CARELESS,))
    with story:
        story.until_well_under_way()  # a death excuses old values that are read, so some are read before
        Harm(story).kill()
        time.sleep(CALM_S)
    story.rest()
    verdict = story.verdict()
    print(story.figures())
    print(verdict)
    assert verdict.broken > 0
    assert verdict.stale > 0
    assert verdict.unserved > 0
