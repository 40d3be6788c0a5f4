"""A shop that changes its prices, and shoppers who read them through four caches: what the web page shows.

The application of examples/01, grown: `read` is its `product`, once per lane. Each lane keeps the same products in Redis
under keys of its own (`ttl:7`, `fixed:7`, …). One expires, three are kept fresh by an updater, and of the last one the shop
says what it has changed. The shop knows the truth, so it can say which reads were old, and for how long.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    import random

    from cacheupdater_client.asyncio import Redis

PRODUCTS = 200
READS = 60.0  # a second, in each lane
CHANGES = 4.0  # a second
TTL_S = 15  # of the lane that expires: it then costs the database about what the others may
WINDOW_S = 30.0  # that the figures are of
REMEMBERED = 100  # earlier prices of a product
SHOWN = 10  # products on the page, the most read ones
NAMES = ("teapot", "cup", "saucer", "kettle", "jug", "bowl", "plate", "spoon", "tray", "caddy")
LANES = {
    "ttl": "expires after 15 s; who comes then waits for the database",
    "fixed": "loaded again every 12 s, whether it changed or not",
    "price": "loaded again where it prevents the most old prices",
    "told": "as price, and the shop says what it has changed",
}


@dataclass(slots=True)
class Truth:
    """What a product costs, since when, and until when it cost something else."""

    name: str
    price: int
    since: float | None = None  # None: it has never changed
    gone: dict[int, float] = field(default_factory=dict)  # earlier prices; each is the truth until then

    def change(self, price: int, now: float) -> None:
        self.gone[self.price] = now
        self.gone.pop(price, None)
        self.price, self.since = price, now
        while len(self.gone) > REMEMBERED:
            del self.gone[next(iter(self.gone))]

    def old(self, price: int, now: float) -> float:
        """For how long this price has been out of date; 0: it is not."""
        return max(1e-3, now - self.gone[price]) if price in self.gone else 0.0


@dataclass(slots=True)
class Lane:
    """What shoppers of one cache have met lately."""

    reads: deque[tuple[float, bool, float]] = field(
        default_factory=deque
    )  # when, waited, for how long out of date
    shown: dict[int, int] = field(default_factory=dict)  # the last price that somebody read

    def note(self, now: float, *, waited: bool, old: float) -> None:
        self.reads.append((now, waited, old))
        while self.reads[0][0] < now - WINDOW_S:
            self.reads.popleft()

    def figures(self) -> dict[str, float]:
        ages = sorted(old for _, _, old in self.reads if old)
        count = max(1, len(self.reads))
        return {
            "reads": len(self.reads),
            "waited": sum(waited for _, waited, _ in self.reads) / count,
            "stale": len(ages) / count,
            "age": ages[len(ages) // 2] if ages else 0.0,
        }


class Shop:
    """The application: one connection to Redis, one pool to the database."""

    def __init__(self, cache: Redis, database: asyncpg.Pool[Any], dice: random.Random) -> None:
        self.cache = cache
        self.database = database
        self.lanes = {name: Lane() for name in LANES}
        self.truth: dict[int, Truth] = {}
        self.trouble = ""  # the last one that nobody has been told of
        self._dice = dice
        # popularity falls with the rank; the most read products are not the most changed ones
        self._popular = list(accumulate(1.0 / (rank + 1) for rank in range(PRODUCTS)))

    async def open(self) -> None:
        """Its table, and what is in it."""
        async with self.database.acquire() as db:
            await db.execute(
                "CREATE TABLE IF NOT EXISTS products (id bigint PRIMARY KEY, name text NOT NULL, price integer NOT NULL)"
            )
            rows = [(n, f"{NAMES[n % len(NAMES)]} {n}", 100 + 10 * n) for n in range(1, PRODUCTS + 1)]
            await db.executemany("INSERT INTO products VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", rows)
            for row in await db.fetch("SELECT id, name, price FROM products ORDER BY id"):
                self.truth[row["id"]] = Truth(row["name"], row["price"])

    async def read(self, lane: str, number: int) -> None:
        """As it is shown to a shopper."""
        key, waited = f"{lane}:{number}", False
        body = await self.cache.get(key)
        if body is None:
            row = await self.database.fetchrow("SELECT id, name, price FROM products WHERE id = $1", number)
            body, waited = json.dumps(dict(row)), True
            await self.cache.set(key, body, ex=TTL_S if lane == "ttl" else 600)
        now, price = time.monotonic(), json.loads(body)["price"]
        self.lanes[lane].note(now, waited=waited, old=self.truth[number].old(price, now))
        self.lanes[lane].shown[number] = price

    async def change(self, number: int) -> None:
        """Another price."""
        price = self._dice.randrange(100, 3000)
        async with self.database.acquire() as db:
            await db.execute("UPDATE products SET price = $1 WHERE id = $2", price, number)
        self.truth[number].change(price, time.monotonic())
        await self.cache.invalidate(f"told:{number}")

    async def shoppers(self) -> None:
        """Until cancelled: the same product in each lane, so that none is luckier."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self._dice.expovariate(READS))
                (number,) = self._dice.choices(range(1, PRODUCTS + 1), cum_weights=self._popular)
                for lane in LANES:
                    group.create_task(self._survive(self.read(lane, number)))

    async def changes(self) -> None:
        """Until cancelled. Half of all products never change."""
        while True:
            await asyncio.sleep(self._dice.expovariate(CHANGES))
            await self._survive(self.change(1 + 2 * self._dice.randrange(PRODUCTS // 2)))

    async def _survive(self, work: Any) -> None:
        """A Redis or a database that is away costs this read, and no more."""
        try:
            await work
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as e:
            self.trouble = f"{type(e).__name__}: {e}"
        except Exception as e:  # redis-py's errors share no base with OSError  # noqa: BLE001
            self.trouble = f"{type(e).__name__}"

    def state(self) -> dict[str, object]:
        """What the page shows."""
        now = time.monotonic()
        products = [
            {
                "id": number,
                "name": truth.name,
                "price": truth.price,
                "since": None if truth.since is None else now - truth.since,
                "lanes": {
                    name: (price, truth.old(price, now)) if (price := lane.shown.get(number)) else None
                    for name, lane in self.lanes.items()
                },
            }
            for number, truth in list(self.truth.items())[:SHOWN]
        ]
        lanes = [{"name": name, "what": LANES[name], **lane.figures()} for name, lane in self.lanes.items()]
        trouble, self.trouble = self.trouble, ""
        return {"lanes": lanes, "products": products, "trouble": trouble, "window": WINDOW_S}
