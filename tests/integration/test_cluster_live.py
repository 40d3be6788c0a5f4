"""A Redis Cluster under an application and a real updater: slots move back and forth with keys in them, primaries die.

`live_story` says what must hold, and what Redis itself may forget.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import cycle

import pytest
import redis.cluster
from group.rows import KEYS
from live.story import CALM_S, CLIENT, QUIET_A_SECOND, TAGS, Story, Strike, name_of, now, rounds_of
from live.updater_process import ROOT
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.retry import Retry

from cacheupdater.local.redis_cluster import Migration
from cacheupdater_client import RedisCluster

ROUND_S = 6.0  # a death or two, and until all is well again
LOUD = 40
AT_ONCE = 10  # keys of a slot that leave together, as with redis-cli; a key and its floor are two
MOVES_MOST = 200
PAUSE_S = 0.03  # between two steps of a move
ERRORS = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")
CARELESS = str(ROOT / "tests" / "support" / "live" / "careless_updater.py")

pytestmark = [pytest.mark.prove, pytest.mark.timeout(0)]  # as long as it was asked to


class World:
    """The cluster as the story sees it, and what its nodes have said to everybody."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.url = cluster.url
        self._plain = self._connected(redis.cluster.RedisCluster)
        self._said = Counter()
        for node in cluster.nodes:
            cluster.tell(node, "CONFIG", "RESETSTAT")

    def client(self, emit):
        return self._connected(RedisCluster, emit=emit, retry=Retry(NoBackoff(), 1), **CLIENT)

    def fetch(self, names):
        return self._plain.mget_nonatomic(names)

    def close(self):
        self._plain.close()

    def _connected(self, kind, **options):
        nodes = [ClusterNode("127.0.0.1", node.port) for node in self.cluster.nodes]
        return kind(startup_nodes=nodes, require_full_coverage=False, **options)

    @property
    def said(self):
        """How often nodes answered with which of these errors."""
        return self._said + sum(map(self._errors, self.cluster.nodes), Counter())

    def kill(self, node):
        self._said += self._errors(node)
        node.kill()

    def _errors(self, node):
        lines = self.cluster.tell(node, "INFO", "errorstats").decode().split()
        pairs = (line.removeprefix("errorstat_").split(":count=") for line in lines if ":count=" in line)
        return Counter({name: int(count) for name, count in pairs if name in ERRORS})


@pytest.fixture
def world(redis_cluster):
    made = World(redis_cluster)
    yield made
    made.close()


@pytest.fixture
def rounds(group_seconds):
    return rounds_of(group_seconds, ROUND_S)


class Harm:
    """Two slots that have loud keys travel; now and then a primary that takes no part in it dies."""

    def __init__(self, story, slots):
        self.cluster = story.world.cluster
        self.moves = 0
        self._story, self._slots = story, slots
        self._homes = {slot: self.cluster.owner(slot) for slot in slots}

    def kill_while_slots_move(self, dead):
        """One round: the death, and in the midst of it moves between the others. The dead comes back in the end."""
        [heir] = self.cluster.replicas(dead)
        # if all of them lie there, one leaves it first
        slot = min(self._slots, key=lambda each: self._homes[each] is dead)
        self.move(slot, besides=dead)
        promised = [*self._story.promised]
        owners = self.cluster.owners(map(name_of, promised))
        keys = frozenset(key for key, owner in zip(promised, owners, strict=True) if owner is dead)
        began = now()
        self._story.world.kill(dead)
        forgets_until = now()
        deadline = time.monotonic() + 30
        while heir not in self.cluster.primaries():
            assert time.monotonic() < deadline
            self.move(slot, besides=dead)
        self._story.strikes.append(Strike(keys, began, forgets_until, now()))
        for each in self._slots:
            if self._homes[each] is dead:
                self._homes[each] = heir
        dead.start()
        self.cluster.wait_until_settled()

    def move_until(self, enough):
        """The slots travel on until the nodes have said all that they can say of it."""
        for slot in cycle(self._slots):
            if enough() or self.moves > MOVES_MOST:
                break
            self.move(slot)
        assert enough()

    def move(self, slot, besides=None):
        """With its keys, some at a time; both nodes have some of them in between."""
        source = self._homes[slot]
        to = next(node for node in self.cluster.primaries() if node not in {source, besides})
        move = Migration(self.cluster, slot, source, to)
        move.begin()
        while some := self.cluster.tell(source, "CLUSTER", "GETKEYSINSLOT", slot, AT_ONCE):
            move.move_keys(some)
            time.sleep(PAUSE_S)
        move.finish()
        self._homes[slot] = to
        self.moves += 1
        time.sleep(PAUSE_S)


def cast(cluster, quiet):
    """Slots to move, of two primaries; loud keys and quiet ones, many of them in these slots."""
    slots = [key_slot(name_of(tag).encode()) for tag in range(TAGS)]
    homes = {cluster.owner(slot): slot for slot in slots}
    numbers = random.Random(7).sample(range(KEYS), LOUD + quiet)
    return [*homes.values()][:2], numbers[:LOUD], numbers[LOUD:]


def test_cluster_is_reshaped_and_killed_under_load_and_nothing_old_stays(
    world, pg_url, updaters, rounds, record_property
):
    cluster = world.cluster
    slots, loud, quiet = cast(cluster, int(rounds * ROUND_S * QUIET_A_SECOND))
    story = Story(updaters, pg_url, world, loud=loud, quiet=quiet)
    with story:
        harm = Harm(story, slots)
        for _ in range(rounds):
            harm.kill_while_slots_move(cluster.primaries()[len(story.strikes) % 3])
        harm.move_until(lambda: all(world.said[each] for each in ("MOVED", "ASK", "TRYAGAIN")))
        time.sleep(CALM_S)
    story.rest()
    verdict, said = story.verdict(), world.said
    print(f"{harm.moves} moves of a slot, {len(story.strikes)} primaries killed; nodes said {dict(said)}")
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
    assert story.updater.metric("refreshes_total", result="unavailable") > 0
    record_property("figure: redis cluster, hints judged", verdict.hints)
    record_property("figure: redis cluster, slots moved", harm.moves)
    record_property("figure: redis cluster, primaries killed", len(story.strikes))


@pytest.mark.prove
def test_updater_without_the_fence_that_forgets_what_it_could_not_write_does_not_pass(
    world, pg_url, updaters
):
    """The control: should it pass, the judgement proves nothing."""
    slots, loud, quiet = cast(world.cluster, 300)
    story = Story(updaters, pg_url, world, loud=loud, quiet=quiet, program=(CARELESS,))
    with story:
        story.until_well_under_way()
        Harm(story, slots).kill_while_slots_move(world.cluster.primaries()[0])
        time.sleep(CALM_S)
    story.rest()
    verdict = story.verdict()
    print(story.figures())
    print(verdict)
    assert verdict.broken > 0
    assert verdict.stale > 0
    assert verdict.unserved > 0
