"""Every order of three loads, one change of the row and its invalidation: none of the 92,400 orders may end stale.

The same orders with a plain SET and DEL must show stale values, for a check that cannot fail proves nothing.
"""

from __future__ import annotations

import pytest

from cacheupdater.testing.memory_redis import MemoryRedis

KEY = b"k"
OLD, NEW = b"old", b"new"
TTL_MS = 60_000
LOADS = (0, 1, 2)
CHANGE = 3
STEPS = {0: 3, 1: 3, 2: 3, CHANGE: 2}  # a load: token, read, write; the change: commit, invalidate


def orders(left):
    """Every order of the parties' steps, as tuples of parties."""
    if not any(left.values()):
        yield ()
        return
    for party, steps in left.items():
        if steps:
            for rest in orders({**left, party: steps - 1}):
                yield (party, *rest)


class World:
    """One database row, one cache, a clock that ticks a millisecond a step."""

    def __init__(self):
        self.now = 1_000.0
        self.redis = MemoryRedis(lambda: self.now)
        self.redis.set(KEY, OLD)
        self.row = OLD
        self.token = dict.fromkeys(LOADS, 0)
        self.read = dict.fromkeys(LOADS, OLD)

    def run(self, order, write, invalidate):
        done = dict.fromkeys(STEPS, 0)
        for party in order:
            self.now += 0.001
            self.step(party, done[party], write, invalidate)
            done[party] += 1
        return self.redis.get(KEY)

    def step(self, party, number, write, invalidate):
        if party == CHANGE:
            if number == 0:
                self.row = NEW
            else:
                invalidate(self)
        elif number == 0:
            self.token[party] = self.redis.token()
        elif number == 1:
            self.read[party] = self.row
        else:
            write(self, party)


def fenced_write(world, load):
    world.redis.commit(world.token[load], [(KEY, world.read[load], TTL_MS)])


def fenced_invalidate(world):
    world.redis.invalidate(KEY)


def plain_write(world, load):
    world.redis.set(KEY, world.read[load])


def plain_invalidate(world):
    world.redis.delete(KEY)


def late_token_write(world, load):
    world.redis.commit(world.redis.token(), [(KEY, world.read[load], TTL_MS)])


ALL_ORDERS = list(orders(STEPS))


def stale_orders(all_orders, write, invalidate):
    return sum(World().run(order, write, invalidate) == OLD for order in all_orders)


pytestmark = pytest.mark.campaign


def test_orders_are_all_there():
    assert len(ALL_ORDERS) == len(set(ALL_ORDERS)) == 92_400


def test_no_order_ends_stale_behind_the_fence():
    assert stale_orders(ALL_ORDERS, fenced_write, fenced_invalidate) == 0


def test_orders_end_stale_with_plain_set_and_delete():
    assert stale_orders(ALL_ORDERS, plain_write, plain_invalidate) == 12_600


@pytest.mark.parametrize(
    ("write", "invalidate"),
    [
        (fenced_write, plain_invalidate),  # an application that deletes past the fence: 5,670 of all orders
        (late_token_write, fenced_invalidate),  # a token taken after the read proves nothing: 12,600
    ],
)
def test_orders_end_stale_without_each_part_of_the_fence(write, invalidate):
    assert stale_orders(ALL_ORDERS[::10], write, invalidate) > 200
