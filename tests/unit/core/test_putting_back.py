"""A hint that stays open for long is written anew at the end of its partition, and its old place is done."""

from __future__ import annotations

from stories.engine import Story, namespace

from cacheupdater.core.hints import Kind
from cacheupdater.core.putting_back import PACK_KEYS, Old

A, B, C = b"p:1", b"p:2", b"p:3"


def story_of_a_long_key(**changed):
    """A is touched at 0.0, its source fails again and again, and by 5.5 four other packs are finished."""
    story = Story(put_back_behind=4, max_attempts=1_000, backlog_age=1_000.0, **changed)
    story.touch(A, at=0.0)
    fail_until(story, 1.0)
    for number in range(4):
        story.touch(b"p:%d" % (10 + number), at=1.0)
    serve_but(story, {A}, until=5.5)
    return story


def fail_until(story, end):
    serve_but(story, {A, B, C}, until=end)


def serve_but(story, failing, *, until, since=None):
    """Every unit that starts is written, except if it holds one of these keys."""
    at = since or 0.0
    while at < until:
        for unit in story.step(at).units:
            if failing.isdisjoint(unit.keys):
                story.end(unit, at)
            else:
                story.fail(unit, at, own=False)
        at += 0.1


def put_back(story, at):
    """Finds what is to be put back, and puts it where it is read next. Returns the packs and their first offset."""
    found = story.engine.putting_back.find(at)
    first = story.offset
    story.offset += len(found.packs)
    assert story.engine.putting_back.placed(found, range(placed(first), placed(story.offset)), at)
    return found.packs, first


def placed(offset):
    """The place of the pack that is read at this offset: a queue counts places as it likes."""
    return 7_000 + offset


def read_back(story, first):
    """The partition reads its own packs."""
    for offset in range(first, story.offset):
        assert story.engine.cursor.passes(offset, placed(offset))


def test_a_key_that_stays_long_holds_up_nothing():
    story = story_of_a_long_key()
    assert story.done == 0
    packs, first = put_back(story, 5.6)

    assert packs == [Old(Kind.MISS, [A])]
    assert story.done == 5 == first, "the old place is done, and nothing behind the new one was read"
    read_back(story, first)
    story.touch(B, at=5.7)
    story.end(next(unit for unit in story.step(5.7).units if unit.keys == [B]), 5.8)
    assert story.done == first


def test_the_key_is_served_by_its_next_try_and_then_its_new_place_is_done_too():
    story = story_of_a_long_key()
    _, first = put_back(story, 5.6)
    read_back(story, first)
    serve_but(story, set(), since=5.6, until=8.0)

    assert story.done == first + 1
    assert story.engine.pending == 0


def test_a_change_that_is_merged_into_a_hint_put_back_is_not_passed_before_it_is_put_back_too():
    story = story_of_a_long_key()
    _, first = put_back(story, 5.6)
    read_back(story, first)
    story.change(A, at=5.7)
    changed = story.offset - 1
    fail_until(story, 5.0)
    for number in range(4):
        story.touch(b"p:%d" % (20 + number), at=6.0)
    serve_but(story, {A}, since=6.0, until=11.0)

    assert story.done == first, "the new place is not done either"
    packs, again = put_back(story, 11.5)
    assert [(each.kind, each.keys) for each in packs] == [(Kind.CHANGE, [A])]
    assert changed < again == story.done


def test_a_change_between_the_look_and_the_new_place_is_not_passed():
    story = story_of_a_long_key()
    found = story.engine.putting_back.find(5.6)
    story.change(A, at=5.6)
    changed = story.offset - 1
    first, story.offset = story.offset, story.offset + 1
    assert story.engine.putting_back.placed(found, range(placed(first), placed(first) + 1), 5.7)

    assert story.done == changed


def test_our_packs_that_were_read_before_we_know_of_their_place_change_nothing():
    story = story_of_a_long_key()
    found = story.engine.putting_back.find(5.6)
    first = story.offset
    assert not story.engine.cursor.passes(first, placed(first))
    story.touch(A, at=5.6)

    assert not story.engine.putting_back.placed(found, range(placed(first), placed(first) + 1), 5.7)
    assert story.done == 0


def test_an_owner_that_has_not_put_a_pack_back_does_not_pass_over_it():
    story = story_of_a_long_key()
    _, first = put_back(story, 5.6)

    assert not Story().engine.cursor.passes(first, placed(first))


def test_packs_that_were_read_before_the_new_place_have_smaller_offsets_than_it():
    """Others lie between, on another lane say, and the offset of the new place is known once it is read."""
    story = story_of_a_long_key()
    found = story.engine.putting_back.find(5.6)
    assert story.engine.putting_back.placed(found, range(1, 1 + len(found.packs)), 5.6)
    story.touch(B, at=5.7)
    story.end(next(unit for unit in story.step(5.7).units if unit.keys == [B]), 5.8)
    passed, story.offset = story.offset, story.offset + 1
    assert story.engine.cursor.passes(passed, 1)

    story.touch(C, at=5.9)
    assert story.done == passed


def test_a_source_that_is_down_is_no_long_tail():
    story = Story(put_back_behind=1, put_back_keys=2, max_attempts=1_000, backlog_age=1_000.0)
    story.touch(A, B, C, at=0.0)
    story.touch(b"p:4", at=0.0)
    fail_until(story, 5.5)

    assert story.engine.putting_back.find(5.6) is None


def test_a_few_packs_are_rather_read_again():
    story = Story(put_back_behind=4, max_attempts=1_000, backlog_age=1_000.0)
    story.touch(A, at=0.0)
    story.touch(B, at=0.0)
    fail_until(story, 5.5)

    assert story.engine.putting_back.find(5.6) is None


def test_a_key_that_runs_just_now_keeps_its_pack_where_it_is():
    story = story_of_a_long_key()
    at = 5.6
    while not any(unit.keys == [A] for unit in story.step(at).units):
        at += 0.1

    assert story.engine.putting_back.find(at) is None


def test_a_removal_that_redis_does_not_answer_is_put_back_as_a_change():
    story = Story(namespace(max_backlog=1), put_back_behind=1, max_attempts=1_000)
    story.change(A, at=0.0)
    story.change(B, at=0.0)
    work = story.step(0.0)
    story.end(work.units[0], 0.0)
    story.touch(C, at=0.1)
    serve_but(story, set(), since=0.1, until=1.0)
    story.engine.on_invalidated(work.invalidation, (), 5.5)

    packs, first = put_back(story, 5.6)
    assert [(each.kind, each.keys) for each in packs] == [(Kind.CHANGE, work.invalidation.keys)]
    assert story.done <= first
    read_back(story, first)
    story.removed(story.step(6.5).invalidation, 6.6)
    serve_but(story, set(), since=6.6, until=7.0)
    assert story.done == first + 1


def test_no_pack_has_more_keys_than_may_be_of_the_longest():
    story = Story(put_back_behind=1, max_attempts=1_000, backlog_age=1_000.0)
    keys = [b"p:%d" % number for number in range(PACK_KEYS + 1)]
    story.miss(*keys[:2], at=0.0)
    story.miss(*keys[2:], at=0.5)
    serve_but(story, set(keys), since=0.5, until=6.0)

    packs, _ = put_back(story, 6.1)
    assert [len(each.keys) for each in packs] == [PACK_KEYS, 1]


def test_a_miss_that_a_running_head_declined_is_put_back_with_it():
    story = Story(put_back_behind=4, max_attempts=1_000, backlog_age=1_000.0)
    story.touch(A, at=0.0)
    unit = story.start(0.0)
    story.miss(A, at=0.1)
    story.fail(unit, 0.2, own=False)
    for number in range(4):
        story.touch(b"p:%d" % (10 + number), at=0.3)
    serve_but(story, {A}, since=0.3, until=5.5)

    packs, _ = put_back(story, 5.6)
    assert packs == [Old(Kind.MISS, [A])]


def test_packs_that_lean_take_no_room_while_what_they_lean_on_stays():
    story = story_of_a_long_key()
    _, first = put_back(story, 5.6)
    read_back(story, first)
    cursor = story.engine.cursor
    [long] = cursor.long_open(6.0)
    for offset in range(first + 1, first + 50_001):
        cursor.here(6.0, long.peer)
        cursor.read(offset, 6.0, long.peer)

    assert cursor.finished()[-1] == first + 50_000
    assert len(cursor._open_packs) < 10
    assert cursor.advance() == first


def test_a_queue_that_fails_is_asked_again_later():
    story = story_of_a_long_key()
    assert story.engine.putting_back.find(5.6)
    story.engine.putting_back.failed(5.7)

    assert story.engine.putting_back.find(10.6) is None
    assert story.engine.putting_back.find(10.8)


def test_the_oldest_open_hint_stays_as_old_as_it_is():
    story = story_of_a_long_key()
    put_back(story, 5.6)

    assert story.engine.cursor.age(5.6) == 5.6
