"""Says how fresh the reads of this process are: metrics every second, and a report on request.

`Pricing` makes one and runs it beside the partitions. All is read in the event loop, so nothing else changes it meanwhile.
Each step takes a few milliseconds at most; between the steps the partitions work.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.price.key_sample import KEYS, PIECE, joined, key_sample
from cacheupdater.price.meter import AGED, READS, STALE
from cacheupdater.price.report import TIMES, Ahead, Gain, columns_of, describe, gains_of, look_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.ports import Observer
    from cacheupdater.price import Market, Price
    from cacheupdater.price.key_sample import KeySample
    from cacheupdater.price.outlook import Keys
    from cacheupdater.price.report import SourceReport

LEVELS_EVERY = 1.0  # seconds: these metrics cost nothing
REPORT_EVERY = 10.0  # seconds: a report looks at many keys, and its shares move slower than that
GOOD_FOR = 1.0  # seconds for which the last report is returned again


class Freshness:
    """The freshness of all markets of one process."""

    def __init__(
        self, markets: Sequence[Market], policies: Mapping[int, Price], *, observer: Observer
    ) -> None:
        """`policies` holds the policies of our partitions, by partition. It follows changes of ownership."""
        self._markets = markets
        self._policies = policies
        self._observer = observer
        self._since = asyncio.get_running_loop().time()
        self._reports: Sequence[SourceReport] = ()
        self._reported = -REPORT_EVERY
        self._reporting = asyncio.Lock()
        self._over_age: dict[tuple[str, str], int] = {}  # by source and namespace: counted so far

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            await asyncio.sleep(LEVELS_EVERY)
            self._say_levels()
            if clock() >= due:
                due = clock() + REPORT_EVERY
                self._say_reports(await self.report())

    async def report(self) -> Sequence[SourceReport]:
        """The reports on all sources, at most a second old."""
        clock = asyncio.get_running_loop().time
        async with self._reporting:
            if clock() > self._reported + GOOD_FOR or not self._reports:
                self._reports = await self._describe()
                self._reported = clock()
            return self._reports

    async def _describe(self) -> Sequence[SourceReport]:
        clock = asyncio.get_running_loop().time
        policies = list(self._policies.values())
        sample = await self._sample(policies)
        reports = []
        for market in self._markets:
            columns, ahead = None, Ahead()
            if sample is not None:
                columns = columns_of(market, policies[0].spaces, sample)
                ahead = await self._look_ahead(market, columns.keys)
            reports.append(describe(market, columns, ahead, now=clock(), since=self._since))
            await asyncio.sleep(0)
        return reports

    async def _look_ahead(self, market: Market, keys: Keys) -> Ahead:
        outlooks, gains = [], []
        for times in TIMES:
            outlooks.append(look_ahead(market, keys, times=times))
            await asyncio.sleep(0)
        for least in gains_of(market):
            found = look_ahead(market, keys, least=least)
            gains.append(Gain(least, found.spent, found.stale))
            await asyncio.sleep(0)
        return Ahead(outlooks, gains)

    async def _sample(self, policies: Sequence[Price]) -> KeySample | None:
        clock = asyncio.get_running_loop().time
        pieces = [
            (policy, start) for policy in policies for start in range(0, max(policy.table.high, 1), PIECE)
        ]
        rows = sum(policy.table.high for policy in policies)
        parts: list[KeySample] = []
        for policy, start in pieces:
            share = min(PIECE, policy.table.high - start) / max(rows, 1)
            parts.append(key_sample(policy, start, clock(), most=max(2, int(KEYS * share))))
            await asyncio.sleep(0)
        return joined(parts) if parts else None

    def _say_levels(self) -> None:
        level, now = self._observer.level, asyncio.get_running_loop().time()
        for market in self._markets:
            name = market.source.name
            level("price", market.price, label=name)
            level("budget_used", market.spent_lately(now) / market.source.bucket.rate, label=name)
            level("budget_unneeded", market.unneeded / market.source.bucket.rate, label=name)
            level("learned", market.tracked, label=name)
            for namespace, number in market.spaces.items():
                level("stale_estimated", market.meter.share(STALE, READS, number), label=namespace.name)
                self._count_over_age(market, namespace.name, int(market.meter.total[AGED, number]))

    def _count_over_age(self, market: Market, name: str, total: int) -> None:
        at = (market.source.name, name)
        more = total - self._over_age.get(at, 0)
        self._over_age[at] = total
        self._observer.count("over_age", more, label=name)

    def _say_reports(self, reports: Sequence[SourceReport]) -> None:
        level = self._observer.level
        for report in reports:
            level("starved", report.whole.starved, label=report.whole.name)
            for each in report.namespaces:
                if each.stale_measured is None:
                    continue
                level("stale_measured", each.stale_measured, label=each.name)
                level("stale_measured_low", each.stale_measured_low or 0.0, label=each.name)
                level("stale_measured_high", each.stale_measured_high or 0.0, label=each.name)
