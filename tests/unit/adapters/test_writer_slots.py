"""Which node has a key, and what a token keeps of it while keys move."""

import asyncio

import pytest
from redis.exceptions import AskError

from cacheupdater.adapters.writer_redis.slots import ASIDE_MAX, Slots
from cacheupdater.core import cache_url
from cacheupdater.errors import Unavailable

HERE, THERE = ("127.0.0.1", 7001), ("127.0.0.1", 7002)


@pytest.fixture
async def slots():
    made = Slots(cache_url.parse("redis+cluster://127.0.0.1:7001"))
    await made._adopt([(0, 16383, HERE)])
    for number in range(ASIDE_MAX):
        made.gone_ahead(b"p:%d" % number, AskError("1 127.0.0.1:7002"), made._member(HERE))
    return made


async def test_a_view_knows_the_keys_on_the_move_that_it_was_asked_for_and_no_others(slots):
    """A token keeps its view for 30 s, and there are a thousand tokens."""
    asked = [b"p:1", b"p:2", b"q:1"]
    view = await slots.view(asked)
    assert [view.home(key).place for key in asked] == [THERE, THERE, HERE]
    assert len(view.aside) == 2


async def test_a_view_does_not_change_when_more_is_learned(slots):
    view = await slots.view([b"q:1"])
    slots.gone_ahead(b"q:1", AskError("1 127.0.0.1:7002"), slots._member(HERE))
    assert view.home(b"q:1").place == HERE
    assert (await slots.view([b"q:1"])).home(b"q:1").place == THERE


async def test_a_view_for_all_keys_knows_all(slots):
    view = await slots.view()
    assert len(view.aside) == ASIDE_MAX
    assert {each.place for each in view.homes()} == {HERE, THERE}


async def test_the_user_whom_a_node_names_when_it_refuses_is_not_told():
    """As Redis 7 says it; Redis 6 names nobody."""

    async def refuse(reader, writer):
        while head := await reader.readline():
            words = [(await reader.readline(), await reader.readline())[1] for _ in range(int(head[1:]))]
            asks = words[-1] == b"SLOTS\r\n"
            writer.write(b"-NOPERM User c4n4ry has no permissions to run this\r\n" if asks else b"+OK\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        made = Slots(cache_url.parse(f"redis+cluster://c4n4ry:secret@127.0.0.1:{port}"))
        with pytest.raises(Unavailable) as refused:
            await made.view()
        await made.close()
    assert "this user has no permissions to run this" in str(refused.value)
