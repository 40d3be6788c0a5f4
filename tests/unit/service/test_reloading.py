"""Who asks for a reload gets its outcome, and a caller that goes away disturbs nobody."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from cacheupdater.config import load_config
from cacheupdater.errors import CacheUpdaterError, Misconfigured, Unavailable
from cacheupdater.pipeline.notices import Notices
from cacheupdater.service.reloading import Reloading, Reread
from cacheupdater.testing import virtual_loop


class Levels:
    def level(self, *_args):
        """Nobody looks at the metric here."""


class Running:
    """A service with a configuration that never differs from the file's."""

    config = None


class File:
    """What the file says: a configuration, or a mistake."""

    def __init__(self, monkeypatch):
        self.reads = 0
        self.mistake = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.reloading = Reloading(Reread(lambda: None), Levels(), None)
        monkeypatch.setattr(self.reloading, "reload", self.reload)

    async def reload(self, _running):
        self.reads += 1
        await self.may_go_on.wait()
        if self.mistake:
            raise Misconfigured("a mistake")
        return self.reads


@pytest.fixture
async def file(monkeypatch):
    file = File(monkeypatch)
    file.running = asyncio.ensure_future(file.reloading.run(Running()))
    await asyncio.sleep(0)
    yield file
    file.running.cancel()
    await asyncio.gather(file.running, return_exceptions=True)


async def test_callers_before_a_reload_begins_share_it(file):
    assert await asyncio.gather(*(file.reloading.outcome() for _ in range(3))) == [1, 1, 1]
    assert await file.reloading.outcome() == 2


async def test_a_caller_that_comes_while_a_reload_runs_gets_the_next_one(file):
    file.may_go_on.clear()
    first = asyncio.ensure_future(file.reloading.outcome())
    while not file.reads:  # noqa: ASYNC110  turns of the loop, no time
        await asyncio.sleep(0)
    second = asyncio.ensure_future(file.reloading.outcome())
    await asyncio.sleep(0)
    file.may_go_on.set()
    assert await asyncio.gather(first, second) == [1, 2]


async def test_a_mistake_reaches_the_caller_and_the_next_reload_goes_on(file):
    file.mistake = True
    with pytest.raises(Misconfigured, match="a mistake"):
        await file.reloading.outcome()
    file.mistake = False
    assert await file.reloading.outcome() == 2


async def test_a_caller_that_is_cancelled_takes_nothing_from_the_others(file):
    file.may_go_on.clear()
    gone, stays = (asyncio.ensure_future(file.reloading.outcome()) for _ in range(2))
    while not file.reads:  # noqa: ASYNC110  turns of the loop, no time
        await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    file.may_go_on.set()
    assert await stays == 1


async def test_before_the_start_and_after_the_end_nobody_waits_in_vain(file):
    file.may_go_on.clear()
    left = asyncio.ensure_future(file.reloading.outcome())
    while not file.reads:  # noqa: ASYNC110  turns of the loop, no time
        await asyncio.sleep(0)
    file.running.cancel()
    await asyncio.gather(file.running, return_exceptions=True)
    assert (await asyncio.gather(left, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    with pytest.raises(Unavailable, match="starts or stops"):
        await file.reloading.outcome()


SHOP = """\
version: 1
cache: {url: "redis://127.0.0.1:1/0"}
sources: {shop: {budget: 50/s}}
namespaces:
  item: {key: "item:{id:int}", load: {source: shop, python: "shop:items"}, value: {times: str}}
"""


class Shop:
    """A service that takes over whatever is well formed, and an operator who writes its file."""

    def __init__(self, folder):
        self.file = folder / "shop.yaml"
        self.file.write_text(SHOP)
        self.config = self.read()
        self.notices = Notices(lambda: asyncio.get_running_loop().time())
        self.reloading = Reloading(Reread(self.read, str(self.file)), Levels(), self.notices)

    def read(self):
        return load_config(self.file, {})

    async def go_over(self, config, _changes):
        self.config = config

    async def reload(self, text):
        self.file.write_text(text)
        with contextlib.suppress(CacheUpdaterError):
            await self.reloading.reload(self)
        await asyncio.sleep(60.0)
        self.notices.tick()


async def at_once(work, *args):
    return work(*args)


@pytest.fixture
def shop(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(asyncio, "to_thread", at_once)  # a virtual loop has no threads
    caplog.set_level(logging.INFO, logger="cacheupdater")
    return Shop(tmp_path)


def test_a_refused_file_is_a_trouble_until_a_file_is_accepted(shop, caplog):
    """The next restart would fail, and nobody may have read the log."""

    async def story():
        await shop.reload(SHOP.replace("budget", "bugdet").replace("times", "tims"))
        await shop.reload(SHOP.replace("50/s", "fifty"))
        (said,) = shop.notices.plain()
        assert (said["event"], said["subject"], said["times"]) == ("reload_refused", "", 2)
        before = "the configuration is not taken over, and everything stays as it was: "
        assert said["text"].startswith(f"{before}{shop.file}:3:")
        assert "\n" not in said["text"]
        await shop.reload(SHOP)
        assert shop.notices.plain() == []

    virtual_loop.run(story())
    levels = [(each.levelname, getattr(each, "state", None)) for each in caplog.records]
    assert levels == [("ERROR", "begins"), ("ERROR", "lasts"), ("INFO", "over"), ("INFO", None)]
    first, second, over, _ = caplog.messages
    assert "bugdet" in first
    assert "tims" in first  # each mistake
    assert "fifty" in second
    assert "(for 60 s, 2 times)" in second.splitlines()[0]
    assert over == "reload_refused: over after 120.0 s (2 times)"


@pytest.mark.parametrize("again", [SHOP, SHOP.replace("50/s", "60/s"), SHOP.replace("50/s", "fifty")])
def test_a_file_that_is_gone_is_a_trouble_until_one_is_accepted(shop, again):
    async def story():
        watching = asyncio.ensure_future(shop.reloading.run(shop))
        await asyncio.sleep(2.5)
        shop.file.unlink()
        await asyncio.sleep(5.0)
        assert shop.notices.plain() == []
        await asyncio.sleep(20.0)
        (said,) = shop.notices.plain()
        assert said["event"] == "reload_refused"
        assert said["text"].endswith(f"{shop.file} is gone, and a restart would fail")
        shop.file.write_text(again)
        await asyncio.sleep(5.0)
        assert [each["event"] for each in shop.notices.plain()] == ["reload_refused"] * ("fifty" in again)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    virtual_loop.run(story())


def test_a_file_that_is_gone_for_a_moment_is_no_trouble(shop):
    async def story():
        watching = asyncio.ensure_future(shop.reloading.run(shop))
        for _ in range(5):
            shop.file.rename(away := shop.file.with_name("away.yaml"))
            await asyncio.sleep(4.0)
            away.rename(shop.file)
            await asyncio.sleep(4.0)
            assert shop.notices.plain() == []
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    virtual_loop.run(story())


def test_what_needs_a_restart_is_a_refusal_too(shop):
    async def story():
        await shop.reload(SHOP + "log_keys: full\n")
        (said,) = shop.notices.plain()
        assert said["text"].endswith("log_keys: needs a restart")

    virtual_loop.run(story())


def test_each_of_two_refusals_within_a_minute_is_answered_in_the_log(shop, caplog):
    async def story():
        for text in ("fifty", "sixty"):
            shop.file.write_text(SHOP.replace("50/s", text))
            with pytest.raises(CacheUpdaterError):
                await shop.reloading.reload(shop)

    virtual_loop.run(story())
    assert ["fifty" in caplog.messages[0], "sixty" in caplog.messages[1]] == [True, True]


def test_the_log_warns_where_values_get_another_form(shop, caplog):
    virtual_loop.run(shop.reload(SHOP.replace("times: str", "times: iso")))
    (warning,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert warning.startswith("namespaces.item: its values in Redis that cacheupdater wrote are replaced")
