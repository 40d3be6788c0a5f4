"""A hash table in two arrays, against a dict, above all with many keys for the same place, and while it grows."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cacheupdater.price.slots import _ROOM, _SIZE, Slots, tags_of


def array(values, kind):
    return np.array(values, kind)


@pytest.mark.parametrize("crowd", [1 << 40, 64, 3])
def test_slots_are_a_dict_whatever_comes_and_goes(crowd):
    """`crowd` is how many places the keys begin at."""
    for seed in range(8):
        rng = Random(seed)
        slots, model, free = Slots(300), {}, list(range(300))
        tags = [((rng.randrange(crowd) | (number << 41)) << 1) | 1 for number in range(400)]
        for _ in range(30):
            strangers = [tag for tag in rng.sample(tags, 30) if tag not in model][: len(free)]
            rows = [free.pop() for _ in strangers]
            slots.add(array(strangers, np.int64), array(rows, np.int32))
            model.update(zip(strangers, rows, strict=True))
            gone = rng.sample(list(model), min(len(model), rng.choice([0, 20, 50])))
            slots.remove(array(gone, np.int64), array([model[tag] for tag in gone], np.int32))
            free += [model.pop(tag) for tag in gone]
            asked = rng.sample(tags, 100)
            assert slots.find(array(asked, np.int64)).tolist() == [model.get(tag, -1) for tag in asked]


def test_slots_that_come_and_go_do_not_grow():
    slots = Slots(1_000)
    for turn in range(300):
        tags, rows = (
            tags_of([b"%d:%d" % (turn, each) for each in range(1_000)]),
            np.arange(1_000, dtype=np.int32),
        )
        slots.add(tags, rows)
        slots.remove(tags, rows)

    assert len(slots._tags) <= 2 * _SIZE
    assert (slots._used <= _ROOM).all()
    assert (slots._rows[: len(slots._depths) * _SIZE] == -1).all()


@pytest.mark.parametrize("expected", [100_000, 10])
def test_slots_that_grow_are_a_dict_all_the_while(expected):
    """A third of the keys leaves again, as many by and by as there are. `expected` may be wrong."""
    rng, slots, model = Random(1), Slots(expected), {}
    row = 0
    while len(model) < 100_000:
        tags = [rng.getrandbits(62) << 1 | 1 for _ in range(rng.choice((1, 1_000, 9_000)))]
        slots.add(array(tags, np.int64), np.arange(row, row + len(tags), dtype=np.int32))
        model.update(zip(tags, range(row, row + len(tags)), strict=True))
        row += len(tags)
        gone = rng.sample(tags, len(tags) // 3)
        slots.remove(array(gone, np.int64), array([model.pop(tag) for tag in gone], np.int32))
        asked = [*rng.sample(list(model), min(len(model), 500)), *gone[:500]]
        assert slots.find(array(asked, np.int64)).tolist() == [model.get(tag, -1) for tag in asked]

    assert slots.find(array(list(model), np.int64)).tolist() == list(model.values())
    assert (slots._used <= _ROOM).all()


def test_two_keys_that_share_a_hash_leave_apart():
    slots = Slots(1_000)
    same = array([7, 7], np.int64)
    slots.add(same, array([0, 1], np.int32))
    slots.remove(same[:1], array([1], np.int32))
    assert slots.find(same[:1]).tolist() == [0]
    slots.remove(same[:1], array([0], np.int32))

    assert slots.find(same[:1]).tolist() == [-1]


def test_no_keys_are_no_work():
    slots = Slots(1_000)
    nobody = tags_of([])
    slots.add(nobody, nobody.astype(np.int32))
    slots.remove(nobody, nobody.astype(np.int32))

    assert slots.find(nobody).tolist() == []
    assert (tags_of([b"", b"a"]) != 0).all()
