"""Calls on one connection take turns, and those that wait leave together; no call gets another one's replies."""

from __future__ import annotations

import asyncio

import pytest
from redis import exceptions as redis_errors

from cacheupdater.adapters.writer_redis.sessions import TOGETHER_BYTES, Session


class Line:
    """A connection whose server answers when the test says so: with the command itself."""

    def __init__(self):
        self.sent: list[list[bytes]] = []  # what has left together
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._unanswered: list[bytes] = []

    async def connect(self): ...

    async def send_packed_command(self, packed, check_health):
        assert not check_health
        self.sent.append([_last_word(each) for each in packed])
        self._unanswered += self.sent[-1]

    async def read_response(self):
        return await self.answers.get()

    def answer(self):
        """All that has been sent so far."""
        for each in self._unanswered:
            self.answers.put_nowait(each)
        self._unanswered.clear()

    async def disconnect(self, nowait): ...


def _last_word(command):
    return command.rstrip(b"\r\n").rpartition(b"\n")[2]


@pytest.fixture
def line():
    return Line()


@pytest.fixture
def session(line):
    async def make():
        return line

    return Session(make)


async def turn():
    for _ in range(5):
        await asyncio.sleep(0)


def calls(session, *words):
    return [asyncio.ensure_future(session.call([("GET", word)])) for word in words]


async def test_calls_that_wait_leave_together_and_each_gets_its_own_replies(session, line):
    first = asyncio.ensure_future(session.call([("GET", "a"), ("GET", "b")]))
    await turn()
    others = [
        *calls(session, "c"),
        asyncio.ensure_future(session.call([("GET", "d"), ("GET", "e")])),
        *calls(session, "f"),
    ]
    await turn()
    assert line.sent == [[b"a", b"b"]]
    line.answer()
    await turn()
    assert line.sent[1:] == [[b"c", b"d", b"e", b"f"]]
    line.answer()
    assert await first == [b"a", b"b"]
    assert await asyncio.gather(*others) == [[b"c"], [b"d", b"e"], [b"f"]]
    assert not session.is_busy


async def test_large_call_has_a_turn_of_its_own(session, line):
    large = "x" * TOGETHER_BYTES
    waiting = calls(session, "a", "b", large, "c")
    for _ in range(4):
        await turn()
        line.answer()
    assert await asyncio.gather(*waiting) == [[b"a"], [b"b"], [large.encode()], [b"c"]]
    assert line.sent == [[b"a"], [b"b"], [large.encode()], [b"c"]]


@pytest.mark.parametrize("sent", [False, True], ids=["before it is sent", "after it was sent"])
async def test_call_that_is_cancelled_while_it_waits_disturbs_no_other(session, line, sent):
    first, second, cancelled, last = calls(session, "a", "b", "c", "d")
    await turn()
    if sent:
        line.answer()
        await turn()
    cancelled.cancel()
    for _ in range(3):
        await turn()
        line.answer()
    assert await asyncio.gather(first, second, last) == [[b"a"], [b"b"], [b"d"]]
    assert cancelled.cancelled()
    assert (b"c" in line.sent[1]) == sent
    assert not session.over


async def test_call_that_is_cancelled_before_its_turn_has_none(session, line):
    first, cancelled, last = calls(session, "a", "b", "c")
    await turn()
    cancelled.cancel()
    for _ in range(2):
        await turn()
        line.answer()
    assert await asyncio.gather(first, last) == [[b"a"], [b"c"]]
    assert line.sent == [[b"a"], [b"c"]]


async def test_turn_of_a_call_that_is_cancelled_just_then_goes_to_the_next(session, line):
    first, second, third = calls(session, "a", "b", "c")
    await turn()
    line.answer()
    for _ in range(20):
        if first.done():
            break
        await asyncio.sleep(0)
    second.cancel()  # it has the turn, and does not know yet
    await turn()
    line.answer()
    assert await third == [b"c"]
    assert second.cancelled()


async def test_cancelled_exchange_ends_the_session_for_all_that_wait(session, line):
    first, second, third, fourth = calls(session, "a", "b", "c", "x" * TOGETHER_BYTES)
    await turn()
    line.answer()
    await turn()
    second.cancel()  # its replies would answer the next command
    results = await asyncio.gather(first, second, third, fourth, return_exceptions=True)
    assert [type(each) for each in results] == [
        list,
        asyncio.CancelledError,
        redis_errors.ConnectionError,
        redis_errors.ConnectionError,
    ]
    assert session.over
    assert not session.is_busy
    with pytest.raises(redis_errors.ConnectionError):
        await session.call([("GET", "e")])
