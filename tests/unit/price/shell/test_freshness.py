"""The figures of a process about its prices, each second and on request."""

from __future__ import annotations

import asyncio
import time
from random import Random

from stories.shell import in_virtual_time

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.policy import Fixed, Loaded
from cacheupdater.pipeline.notices import Notices
from cacheupdater.price.report import plain
from cacheupdater.price.shell.pricing import Pricing
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.patterns import Pattern


class Process:
    """Two sources with a priced namespace each, and one that is refreshed at a fixed interval."""

    def __init__(self, *, priced=True, partitions=2):
        self.observer = RecordingObserver()
        self.spaces = [self.space(name, priced) for name in ("product", "basket")]
        keyspace = Keyspace([(each.pattern, each) for each in self.spaces])
        self.pricing = Pricing(
            self.spaces,
            {},
            limits=Limits(),
            random=Random(1).random,
            observer=self.observer,
            notices=Notices(lambda: 0.0),
        )
        self.policies = [self.pricing.policy(keyspace, number, 0.0) for number in range(partitions)]

    def space(self, name, priced):
        source = Source(f"db-{name}", Bucket(100.0, 100.0, now=0.0), concurrency=1)
        terms = Terms(max_age=5.0) if priced else None
        return Namespace(name, Pattern.compile(f"{name}:{{id:int}}"), source, terms=terms)

    async def live(self, seconds):
        """Products are read all the time and loaded when asked for, if the draw says so or the price."""
        clock = asyncio.get_running_loop().time
        talking = asyncio.get_running_loop().create_task(self.pricing.run())
        for _ in range(seconds):
            for number, policy in enumerate(self.policies):
                keys = [b"product:%d" % n for n in range(number * 100, number * 100 + 100)]
                asked = [*policy.on_hints(keys, [2] * 100, clock()), *policy.tick(clock())]
                policy.on_loaded(Loaded(Kind.TOUCH, asked, [True] * len(asked), clock(), []), clock())
            await asyncio.sleep(1.0)
        await asyncio.sleep(0.5)
        talking.cancel()


@in_virtual_time
async def test_each_source_and_namespace_has_its_levels():
    process = Process()
    await process.live(15)
    levels = process.observer.levels
    for source in ("db-product", "db-basket"):
        for metric in ("price", "budget_used", "learned", "starved"):
            assert (metric, source) in levels
    assert levels["learned", "db-product"] == 200
    assert levels["learned", "db-basket"] == 0
    assert 0.0 < levels["stale_estimated", "product"] <= 1.0
    assert (
        levels["stale_measured_low", "product"]
        <= levels["stale_measured", "product"]
        <= levels["stale_measured_high", "product"]
    )
    assert (
        "stale_measured",
        "basket",
    ) not in levels  # nothing was drawn: no number is better than a wrong one


@in_virtual_time
async def test_reads_of_values_beyond_their_greatest_age_are_counted_once():
    process = Process(partitions=1)
    policy = process.policies[0]
    key = b"product:1"
    policy.on_hints([key], [1], 0.0)
    policy.table.times[:, 1] = -100.0  # its load never came
    policy.on_hints([key], [7], 1.0)
    talking = asyncio.get_running_loop().create_task(process.pricing.run())
    await asyncio.sleep(3.5)
    talking.cancel()
    assert process.observer.total("over_age", label="product") == 7


@in_virtual_time
async def test_whoever_asks_gets_all_sources_and_within_a_second_the_same_answer():
    process = Process()
    await process.live(5)
    first = await process.pricing.freshness.report()
    assert [each.whole.name for each in first] == ["db-product", "db-basket"]
    assert len(first[0].outlook) == 3
    assert await process.pricing.freshness.report() is first
    await asyncio.sleep(1.1)
    assert await process.pricing.freshness.report() is not first


@in_virtual_time
async def test_a_process_without_prices_has_nothing_to_report():
    process = Process(priced=False)
    assert isinstance(process.policies[0], Fixed)
    await process.live(0)
    assert plain(await process.pricing.freshness.report()) == {"version": 1, "sources": []}


@in_virtual_time
async def test_a_report_of_a_million_keys_never_holds_the_loop_up():
    process = Process(partitions=1)
    policy, number = process.policies[0], 1_000_000
    for first in range(0, number, 100_000):
        policy.on_hints([b"product:%d" % n for n in range(first, first + 100_000)], [], 1.0)
    began = last = time.thread_time()
    longest = 0.0
    reporting = asyncio.get_running_loop().create_task(process.pricing.freshness.report())
    while not reporting.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    [report, _] = await reporting
    assert report.whole.learned == number
    assert longest < 0.05  # usually 6 ms; a machine of the suite may be ten times slower
    assert longest < 0.4 * (last - began)  # so many steps; the look at the table in one piece is 0.7 of it
