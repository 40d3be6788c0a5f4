"""The fake is compared with the real scripts: one random program on both, equal answers and equal state after each step.

The fake's clock is set to the server's before each step. Floors from the server's own clock (invalidations) differ by the
microseconds in between. They are compared with a tolerance and then made equal.
"""

from __future__ import annotations

import random

import pytest
import redis
from servers import fence_calls as real

from cacheupdater.testing.memory_redis import MemoryRedis, Other
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.lease import Grace

STEPS = 1500
SECOND = 10**9  # of a token
NEAR = 3 * SECOND // 2  # far more than a step takes on a busy machine; less than what tells two cases apart
KEYS = [b"a", b"{b}c", b"d{}", b"\xff"]
STRINGS = [b"", b"x", b'{"y":1}', b"7", b"\x80\x04K\x07.", b"\x81\xa1y\x01", b"!\x80\x04K\x07."]
STRINGS += [b'{"ct": 5.5, "v": 2}|\x80\x04K\x07.', b'{"ct": 5.5, "v": 2}|{"y":1}']
FORMS = ["type", "json", "msgpack", "string", "hash", "pickle", "cachelib"]
DATED = {"dogpile": b"\x80\x04K\x07.", "dogpile-json": b'{"y":1}'}  # their payloads
HASHES = [{b"f": b"1"}, {b"f": b"2"}, {b"f": b"1", b"g": b"2"}]
TTLS_MS = [30_000, 100_000]


class Program:
    """Both servers, and the seed that decides what happens to them."""

    def __init__(self, seed, client):
        self.rng = random.Random(seed)
        self.real = client
        self.now = 0
        self.near = NEAR
        self.fake = MemoryRedis(lambda: self.now / SECOND)
        self.tokens = []
        self.seen = set()
        self.prolonged = 0  # when, by the server's clock

    def step(self):
        self.tokens = [*self.tokens[-8:], self.tick()]
        act = self.rng.choices(
            [self.commit, self.prolong, self.invalidate, self.write_through, self.plain, self.move_floor],
            [8, 4, 2, 3, 3, 1],
        )[0]
        act()
        found = [(key, *self.look(key)) for key in KEYS]
        self.near = self.tolerance()  # after the last look
        for each in found:
            self.compare(*each)

    def tick(self):
        """Sets the fake's clock by the server's."""
        now = real.token(self.real)
        # A float of seconds keeps microseconds only roughly; the fake must read exactly what the server said.
        self.now = now + 500
        return now

    def tolerance(self):
        """A machine may stand still for seconds within a step."""
        return NEAR + real.token(self.real) - self.now

    def token(self):
        floors = [floor for key in KEYS if (floor := self.fake.floor(key))]
        near_floor = [floor // 1000 * 1000 + d for floor in floors for d in (-1000, 0, 1000)]
        shifted = [self.now // 1000 * 1000 + s * SECOND for s in (-40, -20, 20)]
        return self.rng.choice([*self.tokens, *near_floor, *shifted])

    def value(self, form="type"):
        if form in DATED:
            return self.rng.choice([None, b'{"ct": 0, "v": 2}|' + DATED[form], b'{"ct": 0, "v": 2}|9'])
        return self.rng.choice([None, {}, *STRINGS, *HASHES])

    def commit(self):
        keys = self.rng.choices(KEYS, k=self.rng.randrange(1, 5))
        options = {"replace": self.rng.random() < 0.3, "hold_off_ms": self.rng.choice([0, 7_000])}
        options["form"] = form = self.rng.choice([*FORMS, *DATED])
        entries = [(key, self.value(form), self.rng.choice([*TTLS_MS, 0])) for key in keys]
        token = self.token()
        got = real.commit(self.real, token, *entries, **options)
        assert got == self.fake.commit(token, entries, **options)
        self.seen |= {each if isinstance(each, int) else type(each) for each in got}

    def invalidate(self):
        keys = self.rng.sample(KEYS, self.rng.randrange(1, 3))
        options = {"hold_off_ms": self.rng.choice([0, 0, 10_000])}
        options["forms"] = {key: self.rng.choice([*FORMS, *DATED]) for key in keys if self.rng.random() < 0.5}
        got = real.invalidate(self.real, *keys, **options)
        assert got == self.fake.invalidate(*keys, **options)
        self.seen |= {f"invalidate {each}" for each in got}
        self.align(keys)

    def prolong(self):
        keys = self.rng.sample(KEYS, self.rng.randrange(1, 3))
        # no key gets so old here that both bounds are the same: then a millisecond would decide
        grace = self.rng.choice([Grace(10_000, 15_000), Grace(200_000, 70_000)])
        form = self.rng.choice([None, *FORMS])
        # the server counts whole milliseconds: within one, a value that was just prolonged has nothing to gain
        while self.tick() < self.prolonged + SECOND // 500:
            pass
        self.prolonged = self.now
        got = real.prolong(self.real, *keys, grace=grace, form=form)
        assert got == self.fake.prolong(*keys, grace=grace, form=form)
        self.seen |= {f"prolong {each}" for each in got}

    def write_through(self):
        key, value, since = self.rng.choice(KEYS), self.value(), self.token()
        ttl_ms = self.rng.choice(TTLS_MS)
        got = real.write_through(self.real, key, value, ttl_ms, since)
        assert got == self.fake.write_through(key, value, ttl_ms, since)
        self.seen.add(f"write_through {got}")
        self.align([key])

    def align(self, keys):
        for key in keys:
            floor = real.floor(self.real, key)
            assert abs(floor - self.fake.floor(key)) < self.tolerance()
            assert floor % 1000 == self.fake.floor(key) % 1000
            self.fake.set_floor(key, floor, self.fake.floor_ttl_ms(key))

    def plain(self):
        """What an application does that knows no fence."""
        key, value = self.rng.choice(KEYS), self.rng.choice([None, *STRINGS, *HASHES, Other()])
        self.real.delete(key)
        self.fake.delete(key)
        if value is None:
            return
        self.fake.set(key, value)
        if isinstance(value, Other):
            self.real.rpush(key, b"item")
        elif isinstance(value, bytes):
            self.real.set(key, value)
        else:
            self.real.hset(key, mapping=value)

    def move_floor(self):
        key = self.rng.choice(KEYS)
        token = (
            self.now // 1000 * 1000
            + self.rng.choice([-100, -10, 5, 59, 62, 10_000]) * SECOND
            + self.rng.choice([998, 999])
        )
        real.set_floor(self.real, key, token)
        self.fake.set_floor(key, token, 60_000)

    def look(self, key):
        """Value, floor, and the milliseconds that each has left in the real server."""
        kind = self.real.type(key)
        held = {b"none": lambda _: None, b"list": lambda _: Other(), b"string": self.real.get}.get(
            kind, self.real.hgetall
        )(key)
        lives = [self.real.pttl(name) for name in (key, fence.floor_name(key))]
        return held, real.floor(self.real, key), *lives

    def compare(self, key, held, floor, value_ms, floor_ms):
        assert held == self.fake.get(key)
        assert floor == self.fake.floor(key)
        ttl = self.fake.ttl_ms(key)
        assert value_ms == pytest.approx({0: -2, float("inf"): -1}.get(ttl, ttl), abs=self.near // 10**6)
        left = self.fake.floor_ttl_ms(key)
        assert floor_ms == pytest.approx(left or -2, abs=self.near // 10**6)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.prove)])
def test_fake_answers_and_holds_what_the_real_server_does(every_redis_url, seed):
    with redis.Redis.from_url(every_redis_url) as client:
        real.load_scripts(client)
        program = Program(seed, client)
        for _ in range(STEPS):
            program.step()
    outcomes = {-2, -1, 0, 1, 2, 4, fence.Refused, fence.Failed}
    outcomes |= {"prolong 0", "prolong 1"}
    outcomes |= {"write_through 0", "write_through 1", "invalidate 0", "invalidate -2"}
    assert program.seen == outcomes  # a program that never meets a case proves nothing about it
