"""An updater of the group is frozen for longer than its session, and continues: a zombie, whose partitions belong to others.

One story freezes it at the worst moment, when it holds old rows (`group.loaders`): its writes come late, and must not land
where something newer has been written. A control whose write is a plain SET must show old values. Another story freezes it
under load, at any moment, with the verdict of all stories. A third has it commit too late what it has not done (`group.late`).
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter

import psutil
import pytest
import redis
from group.rows import values
from group.story import LATE as LATE_PROGRAM
from live.updater_process import NAIVE, eventually
from suite.beside import Beside

from cacheupdater_client import Redis

SESSION_S = 3
FROZEN_S = SESSION_S + 2.0
ROWS = 200
KEYS = [f"item:{n}".encode() for n in range(ROWS)]
WATCH_S = 1.5  # after its first late write: the others take milliseconds
LATE = ("refused", "too_old", "late", "evicted")
DEPOTS = ["streams", "sqlite", "postgresql"]
TRIES = 5
ROUNDS = 3  # of a freeze under load


@pytest.fixture(params=["kafka"])
def kind(request):
    return request.param


@pytest.fixture
def group(kind, group_on):
    return group_on(kind)


class Reader(Beside):
    """Reads all keys again and again, and remembers each value that was older than allowed."""

    def __init__(self, redis_url):
        super().__init__()
        self.least = 0  # the version that the last invalidation promised
        self.old = []
        self.reads = 0
        self._url = redis_url

    def run(self):
        with redis.Redis.from_url(self._url) as plain:
            while not self.ended.is_set():
                least = self.least
                found = [value for value in plain.mget(KEYS) if value is not None]
                self.old += [value for value in found if int(value) < least]
                self.reads += 1


def stopped(member):
    return psutil.Process(member.pid).status() == psutil.STATUS_STOPPED


def change_all(database, application):
    """The new version of every row, committed and invalidated."""
    database.execute("UPDATE items SET version = version + 1 WHERE id < $1", ROWS)
    application.invalidate(*KEYS)
    return database.value("SELECT min(version) FROM items WHERE id < $1", ROWS)


def frozen_with_old_rows(zombie, freeze, group, change):
    """Not in the middle of a write to a file of SQLite: that would hold up all others."""
    for _ in range(TRIES):
        freeze.touch()
        change()
        eventually(lambda: stopped(zombie), 30)
        if group.queue.is_free():
            return
        zombie.resume()
    pytest.fail("each time, the zombie was frozen in the middle of a write to the queue")


def late_writes(member):
    """The ends of its refreshes that wrote nothing, each by its name."""
    return [result for result in LATE for _ in range(int(member.metric("refreshes_total", result=result)))]


def fresh(plain, version):
    return all(value is not None and int(value) == version for value in plain.mget(KEYS))


@pytest.mark.prove
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("program", "kind"),
    [
        pytest.param(None, "kafka", id="fenced"),
        pytest.param((NAIVE,), "kafka", id="plain_set"),
        *(pytest.param(None, each, id=each) for each in DEPOTS),
    ],
    indirect=["kind"],
)
def test_what_a_zombie_writes_late_never_replaces_anything_newer(
    program, group, pg_url, database, redis_url, tmp_path
):
    settings = {
        "load": {"source": "main", "python": "group.loaders:items"},
        "value": {"encoding": "string"},
    }
    freeze = tmp_path / "freeze"
    surroundings = {"LOADER_DATABASE": pg_url}
    (owner,) = group.start(1, program=program, environment=surroundings, **settings)
    (zombie,) = group.start(
        1, program=program, environment={**surroundings, "FREEZE_FILE": str(freeze)}, **settings
    )
    with (
        redis.Redis.from_url(redis_url) as plain,
        Redis.from_url(redis_url, emit=group.emit) as application,
        Reader(redis_url) as reader,
    ):

        def both_work():
            version = change_all(database, application)
            eventually(lambda: fresh(plain, version), 30)
            return all(each.metric("refreshes_total") for each in (owner, zombie))

        eventually(both_work)  # of a depot, a member that is ready may have no partition yet
        frozen_with_old_rows(zombie, freeze, group, lambda: change_all(database, application))
        reader.least = version = change_all(database, application)
        time.sleep(FROZEN_S)
        eventually(lambda: fresh(plain, version), 60)  # the owner has all partitions by now
        assert stopped(zombie)
        zombie.resume()
        if program == (NAIVE,):
            eventually(lambda: reader.old)  # the control: if it shows nothing old, this test proves nothing
            return
        late = eventually(lambda: Counter(late_writes(zombie)))
        time.sleep(WATCH_S)
        old, reads = len(reader.old), reader.reads
        group.rest()
        assert fresh(plain, version)
    assert old == 0
    assert reads > 10
    print(f"the zombie's late writes: {dict(late)}; {reads} reads of all keys")
    assert owner.running


@pytest.mark.prove
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["kafka", *DEPOTS], indirect=True)
def test_updaters_that_freeze_under_load_lose_nothing_and_write_nothing_old(kind, group, record_property):
    draw = random.Random(7)
    group.start(3)
    with group.generator(seconds=200, rate=5_000 if kind == "kafka" else 2_000) as generator:
        for _ in range(ROUNDS):
            time.sleep(draw.uniform(1.0, 3.0))
            zombie = draw.choice(group.members)
            group.freeze(zombie)
            time.sleep(FROZEN_S)
            zombie.resume()
        time.sleep(2)
        emitted = generator.end()
    group.rest()
    verdict = group.verdict(emitted)
    late = {result: group.metric("refreshes_total", result=result) for result in LATE}
    print(
        f"{kind}: {verdict}; late: {late}; commits of others' partitions: {group.metric('commit_failures_total')}"
    )
    assert verdict.faults == {}
    assert group.metric("dropped_total") == 0
    assert len(values(group.redis_url).keys) == verdict.values
    record_property(f"figure: zombies under load on {kind}, hints judged", verdict.hints)
    record_property(f"figure: zombies under load on {kind}, writes too late", sum(late.values()))


@pytest.mark.prove
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", DEPOTS, indirect=True)
def test_what_a_zombie_commits_late_is_refused(kind, group, tmp_path, record_property):
    """It commits what its heirs have not done yet, so the ledger would show each commit that counts."""
    told = tmp_path / "late"
    slow = {"budget": "700/s"}  # much waits when it wakes
    group.start(1, **slow)
    (zombie,) = group.start(1, program=(LATE_PROGRAM,), environment={"LATE_FILE": str(told)}, **slow)
    with group.generator(seconds=200, rate=2_000) as generator:
        eventually(lambda: zombie.metric("pending") > 200)
        group.freeze(zombie)
        time.sleep(FROZEN_S)
        told.touch()
        zombie.resume()
        answer = tmp_path / "late.answer"
        eventually(answer.exists)
        emitted = generator.end()
    group.rest()
    verdict = group.verdict(emitted)
    late, refused = json.loads(answer.read_text())
    print(f"{kind}: {refused} of {late} late commits refused; {verdict}")
    assert refused == late > 0
    assert verdict.faults == {}
    record_property(f"figure: zombies on {kind}, late commits refused", refused)
