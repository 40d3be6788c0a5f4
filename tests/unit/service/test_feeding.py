"""The feeds of a process: what ends them, and what may not be left behind."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from cacheupdater.feeds.sinks import SharedSink
from cacheupdater.service.feeding import Feeding


class Broken(SharedSink):
    """A sink whose way to the queue ends by an error of ours."""

    def __init__(self):
        """Nothing is connected."""

    async def run(self):
        raise RuntimeError("a mistake")


async def test_feeds_do_not_go_on_without_their_way_to_the_queue(monkeypatch):
    config = SimpleNamespace(feeds=True, sources={})
    generation = SimpleNamespace(config=config, components=SimpleNamespace(config=config))
    feeding = Feeding(None, observer=None, notices=None)
    monkeypatch.setattr(feeding, "_sink", lambda _config, _partitions: Broken())
    with pytest.raises(RuntimeError, match="a mistake"):
        async with asyncio.timeout(5):
            await feeding.run(lambda: generation, 1)
