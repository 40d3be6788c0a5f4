"""The virtual-time loop: waiting costs nothing, hanging is an error, and nothing real gets in."""

from __future__ import annotations

import asyncio
import threading
from time import perf_counter

import pytest

from cacheupdater.testing import virtual_loop
from cacheupdater.testing.virtual_loop import Deadlock, Livelock, Unreal, VirtualLoop


def test_loop_passes_an_hour_in_a_moment():
    async def wait():
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.sleep(7200)
        return loop.time()

    began = perf_counter()  # a minute is more than any machine needs, and far less than an hour
    assert virtual_loop.run(wait()) == 3600
    assert perf_counter() - began < 60


def test_loop_keeps_the_order_of_timers_and_stands_still_in_between():
    seen = []

    async def wait(name, *pauses):
        for pause in pauses:
            await asyncio.sleep(pause)
            seen.append((name, asyncio.get_running_loop().time()))

    async def both():
        await asyncio.gather(wait("slow", 2.0, 2.0), wait("fast", 0.5, 1.0, 2.0))

    virtual_loop.run(both())
    assert seen == [("fast", 0.5), ("fast", 1.5), ("slow", 2.0), ("fast", 3.5), ("slow", 4.0)]


async def wait_for_nobody():
    await asyncio.Event().wait()


def test_loop_names_who_waits_when_nothing_will_ever_happen():
    with pytest.raises(Deadlock, match="wait_for_nobody"):
        virtual_loop.run(wait_for_nobody())


async def spin():
    while True:  # noqa: ASYNC110  that is the point
        await asyncio.sleep(0)


def test_loop_names_who_spins_when_time_stands_still(monkeypatch):
    monkeypatch.setattr(virtual_loop, "TURNS_MAX", 1000)
    with pytest.raises(Livelock, match="spin"):
        virtual_loop.run(spin())


def test_loop_lets_what_it_gave_up_clean_up_behind_itself(monkeypatch):
    monkeypatch.setattr(virtual_loop, "TURNS_MAX", 1000)
    closed = []

    async def spin_and_close():
        try:
            await spin()
        finally:
            closed.append(True)

    with pytest.raises(Livelock):
        virtual_loop.run(spin_and_close())
    assert closed


@pytest.mark.parametrize(
    "ask",
    [
        lambda loop: asyncio.to_thread(print),
        lambda loop: asyncio.open_connection("127.0.0.1", 1),
        lambda loop: asyncio.start_server(print, "127.0.0.1", 0),
        lambda loop: asyncio.open_unix_connection("/nowhere"),
        lambda loop: asyncio.create_subprocess_exec("true"),
        lambda loop: loop.getaddrinfo("localhost", 1),
    ],
)
def test_loop_refuses_what_takes_real_time(ask):
    async def main():
        await ask(asyncio.get_running_loop())

    with pytest.raises(Unreal):
        virtual_loop.run(main())


def test_loop_refuses_calls_of_other_threads():
    refused = []

    def call(loop):
        try:
            loop.call_soon_threadsafe(print)
        except Unreal as e:
            refused.append(e)

    async def main():
        thread = threading.Thread(target=call, args=(asyncio.get_running_loop(),))
        thread.start()
        thread.join()

    virtual_loop.run(main())
    assert refused


def test_loop_closes_a_generator_that_somebody_forgot():
    closed = []

    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    async def main():
        async for _ in numbers():
            break
        await asyncio.sleep(1)

    virtual_loop.run(main())
    assert closed


def test_loop_begins_at_zero_each_time():
    async def now():
        await asyncio.sleep(5)
        return asyncio.get_running_loop().time()

    assert [virtual_loop.run(now()) for _ in range(2)] == [5, 5]
    loop = VirtualLoop()
    assert loop.time() == 0
    loop.close()
