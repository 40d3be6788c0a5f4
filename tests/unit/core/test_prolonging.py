"""Old values live on while their source fails: for which keys Redis is asked, and when."""

from __future__ import annotations

import pytest
from stories.engine import Story, namespace, plenty

from cacheupdater.core.answers import Result
from cacheupdater.core.budget import Source
from cacheupdater.core.prolonging import AGAIN, PACE, REQUEST_KEYS, ROUNDS

A, B, C = b"p:1", b"p:2", b"p:3"
TTL = 40.0
ROUND = TTL / ROUNDS


def safe(name: str = "p", **changed: object) -> Story:
    return namespace(name, ttl=TTL, fail_safe=3600.0, **changed)


def story_of(*namespaces, **changed: float) -> Story:
    """Nothing comes between: a failed load is tried again after a minute, and loads may take as long as they want."""
    patient = {"backoff": 60.0, "backoff_max": 60.0, "head_timeout": 1e9, **changed}
    return Story(*(namespaces or (safe(),)), **patient)


def running(story: Story, at: float):
    """The one unit that starts now. What Redis is asked for at the same time, it grants."""
    work = story.step(at)
    if work.prolongation is not None:
        story.engine.on_prolonged(work.prolongation, [True] * len(work.prolongation.keys), at)
    (unit,) = work.units
    return unit


def begin_outage(story: Story, *, at: float) -> list[bytes]:
    """Two loads fail within 0.1 s. Returns the keys for which Redis is asked then, among them those of the loads."""
    asked = []
    for turn, key in enumerate((b"p:98", b"p:99")):
        now = at + turn * 2 * PACE
        story.touch(key, at=now)
        story.lose(story.start(now), now)
        asked += story.prolonged(now)
    return asked


def test_the_keys_of_a_load_that_fails_get_more_time_at_once():
    story = story_of()
    story.touch(A, B, at=0.0)
    unit = story.start(0.0)
    story.touch(C, at=0.1)
    story.lose(unit, 0.2)
    assert sorted(story.prolonged(0.2)) == [A, B]
    assert story.count("prolonged", "prolonged") == 2


@pytest.mark.parametrize("answer", [True, False])
def test_a_key_whose_own_load_fails_gets_more_time_and_its_neighbours_get_none(answer):
    story = story_of()
    story.touch(A, at=0.0)
    story.lose(story.start(0.0), 0.1, own=True)
    story.touch(B, at=0.2)
    assert story.prolonged(0.2, answer=answer) == [A]
    assert story.count("prolonged", "prolonged" if answer else "left") == 1


def test_a_read_during_an_outage_gives_more_time_though_no_load_of_the_key_has_failed():
    story = story_of(safe(every=30.0))
    story.touch(A, at=0.0)
    story.refresh(0.0)
    begin_outage(story, at=1.0)
    story.touch(A, at=2.0 + ROUND)  # held: no load
    assert story.prolonged(2.0 + ROUND) == [A]


def test_a_failure_that_is_not_the_sources_gives_no_time():
    story = story_of()
    story.touch(A, at=0.0)
    story.fail(story.start(0.0), 0.1, own=False)
    story.touch(B, at=0.2)
    story.fail(story.start(0.2), 0.3, own=True)
    assert story.prolonged(0.3) == []


def test_all_keys_with_a_seat_get_more_time_when_an_outage_begins():
    story = story_of(safe(every=30.0), turn_keys=2)
    held = [b"p:%d" % n for n in range(5)]
    story.touch(*held, at=0.0)
    story.refresh(0.0)
    asked = begin_outage(story, at=1.0)
    for turn in range(10):
        asked += story.prolonged(1.2 + PACE * turn)
    assert sorted(asked) == sorted([*held, b"p:98", b"p:99"])


def test_a_key_is_asked_for_once_in_a_round_and_once_more_at_its_end_if_it_was_read_again():
    story = story_of()
    begin_outage(story, at=0.0)
    story.touch(A, B, at=1.0)
    assert sorted(story.prolonged(1.0)) == [A, B]
    for at in (2.0, 3.0, 4.0):
        story.touch(A, at=at)
        assert story.prolonged(at) == []
    assert story.step(4.0).wake <= ROUND
    assert story.prolonged(ROUND) == [A]
    assert story.prolonged(2 * ROUND) == []


def test_a_key_that_is_read_twice_before_it_is_asked_for_is_asked_for_once():
    story = story_of()
    begin_outage(story, at=0.0)
    story.touch(A, at=1.0)
    story.touch(A, at=1.1)
    assert story.prolonged(1.1) == [A]
    assert story.prolonged(ROUND) == []


def test_nothing_more_is_asked_for_when_the_source_is_back():
    story = story_of()
    begin_outage(story, at=0.0)
    story.touch(A, at=1.0)
    unit = running(story, 1.0)
    story.touch(A, at=2.0)
    story.end(unit, 3.0)
    story.touch(B, at=4.0)
    assert story.prolonged(4.0) == []
    assert story.prolonged(ROUND) == []


def test_a_load_that_fails_at_redis_shows_that_the_source_is_back():
    story = story_of()
    begin_outage(story, at=0.0)
    story.touch(A, at=1.0)
    unit = running(story, 1.0)
    story.unwritten(unit, 1.5)
    story.touch(B, at=4.0)
    assert story.prolonged(4.0) == []


def test_a_key_with_a_change_that_waits_for_its_turn_gets_no_time():
    story = story_of(safe(source=Source("db", plenty(), concurrency=1)))
    begin_outage(story, at=0.0)
    story.touch(B, at=1.0)
    running(story, 1.0)
    story.change(A, at=1.1)
    story.touch(A, C, at=1.2)
    assert story.prolonged(1.2) == [C]


def test_a_key_with_a_change_that_runs_gets_no_time():
    story = story_of()
    begin_outage(story, at=0.0)
    story.change(A, at=1.0)
    running(story, 1.0)
    story.touch(A, C, at=1.2)
    assert story.prolonged(1.2) == [C]


def test_a_key_with_a_change_that_waits_behind_a_running_load_gets_no_time():
    story = story_of()
    begin_outage(story, at=0.0)
    story.miss(A, at=1.0)
    running(story, 1.0)
    story.change(A, at=1.1)
    story.touch(A, C, at=1.2)
    assert story.prolonged(1.2) == [C]


def test_a_changed_key_whose_load_fails_gets_no_time():
    story = story_of()
    story.change(A, at=0.0)
    story.touch(B, at=0.0)
    for unit in story.step(0.0).units:
        story.lose(unit, 0.1)
    assert story.prolonged(0.1) == [B]


def test_a_key_that_is_to_be_removed_gets_no_time():
    story = story_of(max_attempts=1)
    story.touch(A, at=0.0)
    story.end(story.start(0.0), 0.0, Result.FAILED)
    story.change(A, at=1.0)
    invalidation = story.step(1.0).invalidation
    story.touch(A, at=2.0)
    assert story.prolonged(2.0) == []
    story.removed(invalidation, 3.0)
    story.touch(A, at=4.0)  # barred
    assert story.prolonged(4.0) == [A]


def test_a_read_key_in_quarantine_gets_more_time():
    story = story_of(max_attempts=1)
    story.touch(A, at=0.0)
    story.lose(story.start(0.0), 0.0, own=True)
    story.engine.quarantine.put(A, "no", 0.0)  # not for its statement
    assert story.count("dropped", "quarantined") == 1
    assert story.prolonged(0.0) == [A]
    story.touch(A, at=1.0)
    assert story.prolonged(1.0) == []  # a round has not ended
    assert story.prolonged(ROUND) == []
    story.touch(A, at=ROUND + 1.0)
    assert story.prolonged(ROUND + 1.0) == [A]


def test_requests_are_small_and_one_at_a_time_and_take_turns_among_namespaces():
    source = Source("db", plenty(), concurrency=100)
    story = story_of(safe("p", source=source), safe("q", source=source), unit_keys=2 * REQUEST_KEYS)
    begin_outage(story, at=0.0)
    story.touch(*(b"p:%d" % (100 + n) for n in range(2 * REQUEST_KEYS)), at=1.0)
    story.touch(b"q:1", at=1.0)
    first = story.step(1.0).prolongation
    assert (first.namespace.name, len(first.keys)) == ("p", REQUEST_KEYS)
    assert story.step(1.0 + PACE).prolongation is None
    story.engine.on_prolonged(first, [True] * REQUEST_KEYS, 1.0 + PACE / 2)
    assert story.step(1.0 + PACE / 2).prolongation is None
    assert story.step(1.0 + PACE / 2).wake <= 1.0 + PACE
    second = story.step(1.0 + PACE).prolongation
    assert second.keys == [b"q:1"]
    story.engine.on_prolonged(second, [True], 1.0 + PACE)
    assert len(story.prolonged(1.0 + 2 * PACE)) == REQUEST_KEYS


def test_keys_that_could_not_be_asked_for_in_a_round_are_asked_for_in_the_next():
    story = story_of()
    begin_outage(story, at=0.0)
    story.touch(*(b"p:%d" % (100 + n) for n in range(2 * REQUEST_KEYS)), at=1.0)
    first = story.prolonged(1.0)
    assert not set(first) & set(rest := story.prolonged(ROUND + 1.0))
    assert len(rest) == REQUEST_KEYS


def test_a_namespace_without_fail_safe_asks_for_nothing_beside_one_that_has_it():
    source = Source("db", plenty(), concurrency=100)
    story = story_of(safe("p", source=source), namespace("q", ttl=TTL, source=source))
    begin_outage(story, at=0.0)
    story.touch(b"q:1", A, at=1.0)
    work = story.step(1.0)
    assert work.prolongation.keys == [A]
    story.engine.on_prolonged(work.prolongation, [True], 1.0)
    for unit in work.units:
        story.lose(unit, 1.1)
    assert story.prolonged(2.0) == []


def test_keys_are_asked_for_again_when_redis_could_not_be_reached():
    story = story_of()
    begin_outage(story, at=0.0)
    story.touch(A, at=1.0)
    assert story.prolonged(1.0, answer=None) == [A]
    assert story.prolonged(1.0 + AGAIN / 2) == []
    assert story.step(1.0 + AGAIN / 2).wake <= 1.0 + AGAIN
    assert story.prolonged(1.0 + AGAIN) == [A]
    assert story.count("prolonged", "unreached") == 1


def test_an_answer_that_comes_after_its_round_loses_no_key():
    story = story_of()
    begin_outage(story, at=0.0)
    story.touch(A, at=1.0)
    asked = story.step(1.0).prolongation
    story.step(ROUND + 5.0)
    story.engine.on_prolonged(asked, [None], ROUND + 5.0)
    assert story.prolonged(ROUND + 5.0 + AGAIN) == [A]


def test_keys_beyond_the_limit_are_counted_and_room_comes_back_with_the_next_round():
    story = story_of(prolonged=4)  # two of them are those of the outage's beginning
    begin_outage(story, at=0.0)
    story.touch(A, B, C, at=1.0)
    assert story.prolonged(1.0) == [A, B]
    assert story.count("prolonged", "crowded") == 1
    assert story.prolonged(ROUND + 0.5) == []
    story.touch(C, at=ROUND + 1.0)
    assert story.prolonged(ROUND + 1.0) == [C]


def test_an_evicted_key_gets_more_time():
    story = story_of(head_timeout=3.0)
    story.touch(A, at=0.0)
    story.start(0.0)
    assert story.prolonged(story.limits.head_timeout) == [A]
