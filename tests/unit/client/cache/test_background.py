"""Which refreshes begin, and how threads end."""

from __future__ import annotations

import threading

from cacheupdater_client.cache import background
from cacheupdater_client.cache.background import Background, Refreshes

PATIENCE_S = 60.0


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_key_has_one_refresh_at_a_time_and_a_pause_after_a_failure():
    clock = Clock()
    refreshes = Refreshes(clock)
    new, begun = refreshes.take([b"a", b"b"], 10.0)
    assert begun.flights == new
    again, begun = refreshes.take([b"a", b"c"], 10.0)
    assert set(again) == {b"c"}
    assert begun.flights[b"a"] is new[b"a"]
    new[b"a"].land(b"value")
    new[b"b"].fail(OSError())
    refreshes.end(new)
    again, begun = refreshes.take([b"a", b"b"], 10.0)
    assert set(again) == set(begun.flights) == {b"a"}
    clock.now += 1.1
    assert set(refreshes.take([b"b"], 10.0)[0]) == {b"b"}


def test_nobody_asks_for_a_lease_while_nothing_can_begin():
    refreshes = Refreshes(Clock())
    assert refreshes.busy([b"a"], 10.0) is None
    new, _ = refreshes.take([b"a"], 10.0)
    assert refreshes.busy([b"a"], 10.0).flights == new
    assert refreshes.busy([b"a", b"b"], 10.0) is None
    refreshes.end(new)  # it has brought nothing
    assert refreshes.busy([b"a"], 10.0).flights == {}


def test_a_late_refresh_is_told_once_in_a_pause_and_a_lost_one_gives_way():
    clock = Clock()
    refreshes = Refreshes(clock)
    refreshes.take([b"a"], 10.0)
    clock.now += 11.0
    assert [refreshes.take([b"a"], 10.0)[1].overdue for _ in range(2)] == [[b"a"], []]
    clock.now += 1.1
    assert refreshes.take([b"a"], 10.0)[1].overdue == [b"a"]
    clock.now += 20.0
    assert refreshes.busy([b"a"], 10.0) is None
    assert set(refreshes.take([b"a"], 10.0)[0]) == {b"a"}


def test_there_are_so_many_refreshes_and_pauses_and_no_more(monkeypatch):
    monkeypatch.setattr(background, "KEYS_MAX", 10)
    clock = Clock()
    refreshes = Refreshes(clock)
    new, _ = refreshes.take([b"%d" % number for number in range(20)], 10.0)
    assert len(new) == 10
    refreshes.end(new)
    assert refreshes.take([b"x"], 10.0)[0] == {}
    clock.now += 1.1
    assert set(refreshes.take([b"x"], 10.0)[0]) == {b"x"}


def test_so_many_threads_work_and_end_with_the_work_whatever_it_raises():
    one, gate, began = Background(), threading.Event(), threading.Semaphore(0)
    seen = set()

    def work():
        seen.add(threading.current_thread())
        began.release()
        assert gate.wait(PATIENCE_S)
        raise OSError("no database")

    for _ in range(20):
        one.call(work)
    for _ in range(background.THREADS_MAX):
        assert began.acquire(timeout=PATIENCE_S)
    assert not began.acquire(blocking=False)
    gate.set()
    for thread in seen.copy():
        assert thread.daemon
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    one.call(work)
    for _ in range(17):
        assert began.acquire(timeout=PATIENCE_S)
