"""What a broker's answers say about our rights, where a real broker seldom answers so."""

from __future__ import annotations

from types import SimpleNamespace

from cacheupdater.adapters.topic_kafka import rights
from cacheupdater.errors import Unavailable


class HeldOff:
    """A cluster whose quota for reading is spent: its answers name no topic."""

    async def ask(self, _request, *, broker):
        return SimpleNamespace(topics=[], throttle_time_ms=656)


async def test_a_quota_that_is_spent_is_named_and_is_no_missing_right():
    said = await rights.read(HeldOff(), "hints", {0: 1})
    assert isinstance(said, Unavailable)
    assert "quota" in str(said)
    assert "656 ms" in str(said)
