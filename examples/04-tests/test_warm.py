"""The job's tests: no Redis, no database, and ten minutes pass in a moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from warm import warm

from cacheupdater.ports import at_once
from cacheupdater.testing import virtual_loop
from cacheupdater.testing.dict_loader import DictLoader
from cacheupdater.testing.memory_redis import MemoryRedis, MemoryWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.ports import Leaves
    from cacheupdater_client.protocol.patterns import Captures

PRODUCTS = range(1000)


@pytest.fixture
def redis() -> MemoryRedis:
    return MemoryRedis(lambda: 1e9 + asyncio.get_running_loop().time())


@pytest.fixture
def loader() -> DictLoader:
    return DictLoader({(each,): {"id": each, "price": each * 1.5} for each in PRODUCTS})


def test_a_thousand_prices_are_there_after_ten_minutes(redis: MemoryRedis, loader: DictLoader) -> None:
    async def story() -> None:
        assert await warm(loader, MemoryWriter(redis), PRODUCTS) == 1000
        assert asyncio.get_running_loop().time() == 600.0
        assert redis.get(b"price:7") == b'{"id": 7, "price": 10.5}'

    virtual_loop.run(story())


def test_a_price_that_changes_while_it_is_loaded_is_not_overwritten(
    redis: MemoryRedis, loader: DictLoader
) -> None:
    class Slow(DictLoader):
        async def load(self, keys: Sequence[Captures], leaves: Leaves = at_once) -> Mapping[Captures, object]:
            found = await super().load(keys, leaves)
            redis.invalidate(b"price:7")  # the application announces a change
            await asyncio.sleep(1.0)
            return found

    async def story() -> None:
        assert await warm(Slow(loader.rows), MemoryWriter(redis), PRODUCTS[:10]) == 9
        assert redis.get(b"price:7") is None

    virtual_loop.run(story())
