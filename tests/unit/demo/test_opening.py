"""The open shop: its reads are judged by its ledger, and a back office that has failed is not overlooked."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from cacheupdater.demo.lanes import PRICE
from cacheupdater.demo.ledger import Read
from cacheupdater.demo.opening import Shop
from cacheupdater.errors import CacheUpdaterError


@pytest.fixture
def shop():
    """Without processes. One application has read product 7, version 1, at the time 5."""
    shop = Shop(ExitStack(), None, ())
    shop.office = SimpleNamespace(failure=None)
    read = Read(7, 7, 1, 5.0, waited=False)
    shop.applications.append(SimpleNamespace(lane=PRICE, reads=lambda: [read]))
    return shop


def test_each_read_comes_with_the_verdict_of_the_ledger(shop):
    ((lane, read, verdict),) = shop.reads()
    assert (lane, read.product, verdict.age) == (PRICE, 7, None)
    shop._ledger.commit(7, 2, at=4.0)
    ((_, _, verdict),) = shop.reads()
    assert verdict.age == 1.0


def test_a_back_office_that_has_failed_ends_the_demonstration(shop):
    shop.office.failure = OSError("disk full")
    with pytest.raises(CacheUpdaterError, match="the back office has failed"):
        list(shop.reads())
