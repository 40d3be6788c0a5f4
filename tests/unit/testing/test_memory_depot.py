"""A depot in memory fails as a real one does: before a call was carried out, or after it."""

from __future__ import annotations

import pytest

from cacheupdater.errors import Unavailable
from cacheupdater.testing.memory_depot import MemoryDepot, MemoryTables


@pytest.mark.parametrize(("down", "arrived"), [("before", []), ("after", [b"a"])])
async def test_a_call_fails_before_or_after_it_was_carried_out(down, arrived):
    depot = MemoryDepot(MemoryTables(1, lambda: 0.0))
    depot.down = down
    with pytest.raises(Unavailable):
        await depot.put([(0, b"a")])
    depot.down = ""
    assert [message.payload for message in (await depot.read({0: 0}, 9)).get(0, ())] == arrived
