"""Which node has a key: what is kept for a token while keys are on the move."""

import pytest
from redis.exceptions import AskError

from cacheupdater.adapters.writer_redis.slots import ASIDE_MAX, Slots
from cacheupdater.core import cache_url

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
