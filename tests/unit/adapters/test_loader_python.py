"""A user's function may raise, hang or return nonsense: the load reports it, and the next load works."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from traceback import format_exception
from types import ModuleType

import pytest
from suite.pace import PATIENCE_S

from cacheupdater.adapters.loader_python import PythonLoader
from cacheupdater.errors import Faulty, Misconfigured, TimedOut, Unavailable, Unreached
from cacheupdater_client.protocol.patterns import Pattern

PRODUCT = Pattern.compile("product:{id:int}")
BASKET = Pattern.compile("basket:{user:int}:{shop}")


@pytest.fixture
def shop(monkeypatch):
    """A user's module; tests put functions into it."""
    module = ModuleType("shop_loaders")
    monkeypatch.setitem(sys.modules, "shop_loaders", module)
    return module


def _loader(shop, function, pattern=PRODUCT, **settings):
    shop.load = function
    return PythonLoader("shop_loaders:load", pattern, **settings)


async def test_function_gets_plain_values_for_one_capture_and_tuples_for_several(shop):
    got = []

    def load(keys):
        got.append(keys)
        return {}

    await _loader(shop, load).load([(7,), (8,)])
    await _loader(shop, load, BASKET).load([(7, "de")])
    assert got == [[7, 8], [(7, "de")]]


async def test_function_that_is_not_async_leaves_the_loop_free(shop):
    seen = threading.Event()

    def load(keys):
        assert seen.wait(5)
        return dict.fromkeys(keys, 1)

    loading = asyncio.ensure_future(_loader(shop, load, deadline=5).load([(7,)]))
    await asyncio.sleep(0)
    seen.set()
    assert await loading == {(7,): 1}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "returned NoneType; a mapping"),
        ([7], "returned list; a mapping"),
        ({"7": 1}, "1 key that it was not asked for: str instead of int"),
        ({9: 1, 7: 1}, "1 key that it was not asked for"),
        ({7: None}, "None for 1 key; leave out"),
    ],
)
async def test_nonsense_from_the_function_is_refused_with_the_reason(shop, answer, why):
    async def later(keys):
        return answer

    for function in (later, lambda keys: answer):
        with pytest.raises(Faulty, match=why):
            await _loader(shop, function).load([(7,)])


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ValueError, Faulty),
        (KeyError, Faulty),
        (SystemExit, Faulty),
        (ConnectionRefusedError, Unavailable),
        (TimeoutError, TimedOut),
        (StopIteration, Faulty),
    ],
)
async def test_exception_of_the_function_is_told_by_type_and_line_without_its_text(shop, raised, told):
    def load(keys):
        raise raised(f"can{'ary'}")

    with pytest.raises(told) as error:
        await _loader(shop, load).load([(7,)])
    assert "shop_loaders:load" in str(error.value)
    assert "canary" not in str(error.value)
    assert "canary" not in "".join(format_exception(error.value))


async def test_error_of_the_function_names_its_line(shop):
    async def load(keys):
        raise ValueError(keys)

    with pytest.raises(Faulty, match=r"raised ValueError at .*test_loader_python\.py:\d+"):
        await _loader(shop, load).load([(7,)])


async def test_function_may_say_itself_that_its_backend_is_away(shop):
    def load(keys):
        raise Unavailable("the shop's API is down")

    with pytest.raises(Unavailable, match="API is down"):
        await _loader(shop, load).load([(7,)])


class _Connections:
    """As SQLAlchemy's scoped_session or Django keep them: one for each thread that asks, open for as long as it lives."""

    def __init__(self):
        self._mine, self.opened = threading.local(), []

    def load(self, keys):
        if not hasattr(self._mine, "connection"):
            self._mine.connection = object()
            self.opened.append(threading.current_thread())
        return dict.fromkeys(keys, 1)


async def test_calls_share_threads_that_live_on_and_so_their_connections(shop):
    pool = _Connections()
    loader = _loader(shop, pool.load, deadline=5, threads=5)
    for _ in range(7):
        await asyncio.gather(*(loader.load([(number,)]) for number in range(10)))
    assert 1 <= len(pool.opened) <= 5
    assert all(thread.is_alive() for thread in pool.opened)
    await loader.close()
    for thread in pool.opened:
        await asyncio.to_thread(thread.join, 5)
    assert not any(thread.is_alive() for thread in pool.opened)


async def test_one_call_after_the_other_needs_one_thread(shop):
    pool = _Connections()
    loader = _loader(shop, pool.load, deadline=5, threads=5)
    for number in range(20):
        await loader.load([(number,)])
    assert len(pool.opened) == 1
    await loader.close()


async def test_thread_whose_call_was_given_up_serves_the_next_ones_when_it_is_back(shop):
    pool, release = _Connections(), threading.Event()

    def load(keys):
        pool.load(keys)
        assert release.wait(30)
        return dict.fromkeys(keys, 1)

    loader = _loader(shop, load, deadline=0.05, threads=1)
    with pytest.raises(Unavailable, match="no answer"):
        await loader.load([(7,)])
    release.set()
    async with asyncio.timeout(5):
        while True:
            with contextlib.suppress(Unavailable):
                assert await loader.load([(8,)]) == {(8,): 1}
                break
    assert len(pool.opened) == 1
    await loader.close()


async def test_async_function_that_hangs_is_given_up_at_the_deadline(shop):
    async def load(keys):
        await asyncio.Event().wait()

    with pytest.raises(Unavailable, match=r"no answer within 0\.05 s"):
        await _loader(shop, load, deadline=0.05).load([(7,)])


async def test_threads_that_hang_are_bounded_and_come_back(shop):
    release = threading.Event()
    started = []

    def load(keys):
        started.append(keys)
        release.wait(30)
        return dict.fromkeys(keys, 1)

    loader = _loader(shop, load, deadline=0.05, threads=2)
    for _ in range(4):
        with pytest.raises(Unavailable, match="no answer"):
            await loader.load([(7,)])
    assert len(started) == 2, "the third and fourth call found no free thread"
    release.set()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                assert await loader.load([(7,)]) == {(7,): 1}
                break
            except Unavailable:
                continue


async def test_async_function_that_ignores_its_cancellation_is_given_up_at_the_deadline_and_keeps_its_place(
    shop,
):
    release = asyncio.Event()

    async def load(keys):
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        raise ValueError(keys)

    loader = _loader(shop, load, deadline=0.05, threads=1)
    for kind, why in ((TimedOut, "no answer within 0.05 s"), (Unreached, "all its threads are busy")):
        async with asyncio.timeout(PATIENCE_S):  # it would wait for ever
            with pytest.raises(kind, match=why):
                await loader.load([(7,)])
    release.set()
    await asyncio.sleep(0.01)
    with pytest.raises(Faulty, match="raised ValueError"):
        await loader.load([(7,)])


async def test_thread_that_cannot_be_started_gives_its_place_back(shop, monkeypatch):
    loader = _loader(shop, lambda keys: dict.fromkeys(keys, 1), threads=1)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(Unavailable, match="can't start new thread"):
            await loader.load([(7,)])
    assert await loader.load([(7,)]) == {(7,): 1}


async def test_load_of_nothing_calls_nobody(shop):
    assert await _loader(shop, lambda keys: 1 / 0).load([]) == {}


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("shop.loaders", "write module:function"),
        (":f", "write module:function"),
        ("no_such_module_here:f", "cannot import 'no_such_module_here:f': ModuleNotFoundError"),
        ("math:no_such", "cannot import 'math:no_such': AttributeError"),
        ("math:pi", "of type float, not a function"),
    ],
)
def test_target_that_names_no_function_is_refused_with_the_reason(target, why):
    with pytest.raises(Misconfigured, match=why):
        PythonLoader(target, PRODUCT)


@pytest.mark.parametrize("meddle", [list.sort, list.reverse, list.clear])
async def test_function_that_changes_its_list_changes_no_owner(shop, meddle):
    def load(ids):
        asked = list(ids)
        meddle(ids)
        return {each: f"row {each}" for each in asked}

    rows = await _loader(shop, load).load([(9,), (7,), (8,)])
    assert rows == {(7,): "row 7", (8,): "row 8", (9,): "row 9"}


async def test_function_that_is_cancelled_from_within_has_failed_like_any_other(shop):
    async def load(ids):
        shared = asyncio.get_running_loop().create_future()
        shared.cancel()
        return await shared

    with pytest.raises(Faulty, match="cancelled by something that it waited for"):
        await _loader(shop, load).load([(7,)])
