"""One source's budget, shared with the other updaters of a fleet: how its bucket follows its claim.

`price.shell.pricing` makes one per source where the configuration names a fleet, and runs it as long as the process lives.
If no partitions divide the quotas of namespaces, it makes one per quota too: a quota is a budget without a price.
`core.shares` says which share an owner wants. The fleet, where all owners meet, decides which it gets (`ports.Fleet`).

Why the budget B holds: a bucket's rate is never above its owner's claim. It is lowered before a lower claim is sent, and
raised after a higher one is granted. Nothing is granted beyond B less all other claims. A claim holds in the record for
longer than its owner believes: the owner counts from before its call and stops earlier. The bucket closes by itself at that
moment, even if the whole process slept. So at any time the rates of all owners are at most B together.

Why bursts hold: a bucket saves T seconds of its rate, so at any time all levels together are at most T * B. A bucket that is
lowered gives up what it saved beyond its new burst. One that is raised begins with what it had. One whose claim has run out
is empty, and so is a new owner's. What is spent in a window is at most what all had at its beginning and what flows in, so
B * t + T * B.

A share that could not save up one row is of no use, so no owner has a smaller one. If there are more owners than the burst
has rows, they take turns. An owner that has had its share for a turn gives it back as if it left, and waits behind those that
wait already. An owner that waits asks every second. Owners are served in the order of waiting (`ports.Fleet`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.shares import (
    ASK_AGAIN,
    ASK_NEXT,
    CLAIM_LIFE,
    CLAIM_MARGIN,
    EXCHANGE_EVERY,
    NEXT,
    TURN_LEAST,
    TURN_ROWS,
    Owner,
    aim,
)
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.ports import Offer
from cacheupdater.price.shell.partition_shares import Whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.core.bucket import Bucket
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.pipeline.unsound import Unsound
    from cacheupdater.ports import Fleet, Grant
    from cacheupdater.price import Market

log = logging.getLogger(__name__)

NOTABLE = 1.25  # a share that moved by this factor is worth a line of log
ENOUGH = 0.99  # of what was wanted; an owner that got less asks again soon
ROUNDING = 1e-9  # of a share


class Purse(NamedTuple):
    """What is shared: the bucket of a source or of a quota."""

    what: str  # in words
    name: str  # the fleet's record of it
    bucket: Bucket
    whole: Whole  # what the fleet may spend


class Sharing:
    """One owner's part in one purse."""

    def __init__(
        self,
        purse: Purse,
        market: Market | None,
        fleet: Fleet,
        *,
        wake_up: Callable[[], None],
        notices: Notices,
        unsound: Unsound,
    ) -> None:
        """Until something is granted, the purse's bucket is closed. `wake_up` says that there may be more to spend."""
        self._purse = purse
        self._market = market
        self._fleet = fleet
        self._wake_up = wake_up
        self._notices = notices
        self._unsound = unsound
        self._budget = purse.whole
        self._changed = asyncio.Event()
        self._others: tuple[Owner, ...] | None = None  # None: we have just come
        self._aim = 0.0
        self._since = -inf  # when its present share was granted
        self._logged = 0.0  # the share that was logged last
        purse.bucket.until = asyncio.get_running_loop().time()

    @property
    def name(self) -> str:
        """The fleet's record of the purse."""
        return self._purse.name

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            wait = await self._exchange()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    def change(self, rate: float, burst: float, *, now: float) -> None:
        """Another budget for the fleet. A smaller one is obeyed at once, a larger one is asked for."""
        old, self._budget = self._budget, Whole(rate, max(burst, 1.0))
        share = self._purse.bucket.rate * min(1.0, rate / old.rate)
        self._purse.bucket.change(share, self._burst(share), now=now)
        self._aim *= rate / old.rate
        self._changed.set()

    async def leave(self) -> None:
        """Nothing is spent from now on; the others need not wait for our claim's end."""
        self._purse.bucket.until = asyncio.get_running_loop().time()
        try:
            await self._fleet.leave(self._purse.name)
        except CacheUpdaterError as e:
            log.warning("%s: the fleet waits until our claim has run out: %s", self._purse.what, e)

    async def _exchange(self) -> float:
        """One exchange; how long to wait for the next."""
        clock = asyncio.get_running_loop().time
        wanted, held = self._prepare(clock())
        offer = Offer(self._budget.rate, wanted, held, Owner(self._price(), self._aim), self._least)
        asked = clock()
        try:
            grant = await self._fleet.exchange(self._purse.name, offer)
        except CacheUpdaterError as e:
            self._say_trouble(e)
            return ASK_AGAIN
        self._notices.over("fleet_down", self._purse.name)
        self._unsound.found("fleet", grant.unsound)
        known, self._others = self._others, grant.others
        if known is None:
            return 0.0  # now we know how many owners there are
        share = grant.rate * min(1.0, self._budget.rate / offer.budget)  # it may have changed meanwhile
        self._take(grant, share, asked + CLAIM_LIFE - CLAIM_MARGIN)
        if not grant.rate:
            return ASK_NEXT if wanted and grant.ahead < NEXT else ASK_AGAIN
        settled = len(known) == len(grant.others) and grant.rate >= ENOUGH * wanted
        turn = self._turn_ends - clock() if self._crowded else inf
        return max(ASK_NEXT, min(EXCHANGE_EVERY if settled or self._crowded else ASK_AGAIN, turn))

    def _prepare(self, now: float) -> tuple[float, float]:
        """(wanted, held). A smaller share is obeyed before it is sent."""
        bucket = self._purse.bucket
        if self._others is None:
            return 0.0, 0.0
        mine = Owner(self._price(), self._aim)
        wanted = self._aim = aim(mine, self._others, self._budget.rate, least=self._least)
        if self._crowded:
            wanted = self._least
            if bucket.until > now >= self._turn_ends:
                wanted, bucket.until = 0.0, now
        if now >= bucket.until:
            return wanted, 0.0
        if wanted < bucket.rate:
            bucket.change(wanted, self._burst(wanted), now=now)
        return wanted, bucket.rate

    def _take(self, grant: Grant, share: float, until: float) -> None:
        bucket, now = self._purse.bucket, asyncio.get_running_loop().time()
        if not share or share < self._least * (1.0 - ROUNDING):  # the budget may have changed meanwhile
            bucket.until = now
            return
        if now >= bucket.until:
            self._since = now
        bucket.change(share, self._burst(share), now=now)
        bucket.open(until)
        self._wake_up()
        if not self._logged / NOTABLE < share < self._logged * NOTABLE:
            self._logged = share
            what = "%s: our share of the fleet's %g a second is %.3g, among %d updaters"
            log.info(what, self._purse.what, self._budget.rate, share, 1 + len(grant.others))

    def _price(self) -> float:
        return 0.0 if self._market is None else self._market.scarcity

    @property
    def _least(self) -> float:
        """A smaller share could not save up one row."""
        return self._budget.rate / self._budget.burst

    @property
    def _crowded(self) -> bool:
        """Whether there are too many owners for each to have the least share at once."""
        owners = 1 + len(self._others or ())
        return owners * self._least > self._budget.rate * (1.0 + ROUNDING)

    @property
    def _turn_ends(self) -> float:
        return self._since + max(TURN_LEAST, TURN_ROWS / self._least)

    def _burst(self, share: float) -> float:
        return self._budget.burst * share / self._budget.rate

    def _say_trouble(self, error: CacheUpdaterError) -> None:
        within = CLAIM_LIFE - CLAIM_MARGIN
        text = f"no exchange with the fleet; after {within:g} s without one, nothing is loaded until one succeeds: {error}"
        self._notices.trouble("fleet_down", self._purse.name, text)
