"""What thousands of idle partitions in a SQL database cost: CPU of one updater's queue, and of the database."""

from __future__ import annotations

import asyncio
import time

import psutil
import pytest

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.adapters.queue_depot import DepotQueue
from cacheupdater.core import depot_url
from cacheupdater.core.membership import Session
from cacheupdater.testing.recording_observer import RecordingObserver

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]

SETTLE_S = 5.0
MEASURED_S = 20.0
RENEWALS = 50
SESSION_S = 5.0


class Quiet(RecordingObserver):
    """Keeps which troubles came."""

    def __init__(self):
        super().__init__()
        self.troubles = []

    def trouble(self, event, subject, text):
        self.troubles.append((event, text))

    def over(self, event, subject):
        """Nobody asks."""


def cpu_of_server(process):
    """CPU seconds of all processes of a server, also of those that have ended meanwhile and were waited for."""
    total = 0.0
    for each in [process, *process.children(recursive=True)]:
        try:
            said = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += said.user + said.system
        if each is process:
            total += said.children_user + said.children_system
    return total


async def idle(url, partitions, server_s):
    """CPU per second of the idle queue: of this process, and of the server."""
    quiet = Quiet()
    queue = DepotQueue(depot_at(depot_url.parse(url)), session=SESSION_S, observer=quiet, notices=quiet)
    await queue.start()
    owned = set()

    async def follow():
        async for change in queue.assignments():
            owned.difference_update(change.lost)
            change.settled()
            owned.update(each.partition for each in change.gained)

    following = asyncio.ensure_future(follow())
    while len(owned) < partitions:  # noqa: ASYNC110  a test polls
        await asyncio.sleep(0.05)
    await asyncio.sleep(SETTLE_S)
    quiet.troubles.clear()  # a busy machine may be slow to claim thousands
    began, ours, theirs = time.monotonic(), time.process_time(), server_s()
    await asyncio.sleep(MEASURED_S)
    took = time.monotonic() - began
    result = (time.process_time() - ours) / took, (server_s() - theirs) / took
    await queue.close()
    await following
    assert quiet.troubles == []
    return result


async def renewals(url, server_s):
    """CPU per second of the renewals alone, as often as an updater renews."""
    depot = depot_at(depot_url.parse(url))
    partitions = await depot.open()
    await depot.renew("ann", 60.0)
    assert len(await depot.claim("ann", range(partitions))) == partitions
    ours, theirs = time.process_time(), server_s()
    for _ in range(RENEWALS):
        roster = await depot.renew("ann", 60.0)
    assert len(roster.owners) == partitions
    cost = time.process_time() - ours, server_s() - theirs
    await depot.leave("ann")
    await depot.close()
    return tuple(each / RENEWALS / Session(SESSION_S).every for each in cost)


async def test_renewals_of_five_thousand_partitions_in_postgres_cost_less_than_two_percent_of_a_core(
    postgres_server, record_property
):
    url = f"{postgres_server.url()}?partitions=5000"
    server = psutil.Process(postgres_server._process.pid)
    ours, theirs = await renewals(url, lambda: cpu_of_server(server))
    record_property("figure: 5000 partitions in PostgreSQL, renewals, % of a core: updater", 100 * ours)
    record_property("figure: 5000 partitions in PostgreSQL, renewals, % of a core: server", 100 * theirs)
    all_ours, all_theirs = await idle(url, 5000, lambda: cpu_of_server(server))
    record_property("figure: 5000 idle partitions in PostgreSQL, % of a core: updater", 100 * all_ours)
    record_property("figure: 5000 idle partitions in PostgreSQL, % of a core: server", 100 * all_theirs)
    assert ours + theirs < 0.02
    assert all_ours + all_theirs < 0.1


async def test_three_thousand_idle_partitions_in_sqlite_cost_little(tmp_path, record_property):
    url = f"sqlite:///{tmp_path}/hints.db?partitions=3000"
    ours, _ = await renewals(url, lambda: 0.0)
    record_property("figure: 3000 partitions in SQLite, renewals, % of a core", 100 * ours)
    all_ours, _ = await idle(url, 3000, lambda: 0.0)
    record_property("figure: 3000 idle partitions in SQLite, % of a core", 100 * all_ours)
    assert all_ours < 0.1
