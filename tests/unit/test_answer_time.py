"""A server's time to answer counts only while the loop runs: who could not read an answer does not call the server silent."""

from __future__ import annotations

import asyncio

import pytest

from cacheupdater.answer_time import PARTS, AnswerTime
from cacheupdater.testing.virtual_loop import VirtualLoop

SECONDS = 0.5


class StandingLoop(VirtualLoop):
    """A loop that can stand still."""

    def stand_still(self, seconds):
        self._now += seconds


def played(story):
    """Plays a story that takes its loop."""
    loop = StandingLoop()
    try:
        return loop.run_until_complete(story(loop))
    finally:
        loop.close()


async def answered(loop, *, after):
    answer = loop.create_future()
    loop.call_later(after, lambda: answer.done() or answer.set_result("answer"))
    async with AnswerTime(SECONDS):
        return await answer


@pytest.mark.parametrize("after", [0.01, 0.2, 0.49])
def test_an_answer_in_time_is_heard(after):
    assert played(lambda loop: answered(loop, after=after)) == "answer"


def test_a_server_that_does_not_answer_is_left_in_time():
    async def story(loop):
        with pytest.raises(TimeoutError):
            await answered(loop, after=10 * SECONDS)
        return loop.time()

    assert played(story) == pytest.approx(SECONDS)


@pytest.mark.parametrize("at", [0.001, 0.15, 0.39])
def test_an_answer_that_comes_while_the_loop_stands_still_is_heard(at):
    async def story(loop):
        loop.call_later(at, loop.stand_still, 20 * SECONDS)
        return await answered(loop, after=at + 0.01)

    assert played(story) == "answer"


def test_a_loop_that_stood_still_leaves_the_rest_of_its_time_for_the_answer():
    async def story(loop):
        loop.call_later(0.01, loop.stand_still, 20 * SECONDS)
        return await answered(loop, after=20 * SECONDS + (PARTS - 2) * SECONDS / PARTS)

    assert played(story) == "answer"


def test_the_call_of_a_task_that_is_cancelled_ends_at_once_and_leaves_no_timer():
    async def story(loop):
        faults = []
        loop.set_exception_handler(lambda _, context: faults.append(context))
        call = asyncio.ensure_future(answered(loop, after=0.4))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        ended = loop.time()
        await asyncio.sleep(2 * SECONDS)
        assert faults == []
        return ended

    assert played(story) == pytest.approx(0.05)
