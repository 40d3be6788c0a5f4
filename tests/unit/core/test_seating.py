"""New heads: who gets a seat, and in which company."""

from __future__ import annotations

from stories.engine import Story, namespace

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.policy import Fixed


def key(number: int) -> bytes:
    return b"p:%d" % number


class Knowing(Fixed):
    """Knows the reads per second of some keys."""

    def __init__(self, rates: dict[bytes, float]) -> None:
        self.rates = rates
        self.asked = 0

    def read_rates(self, keys, now):
        self.asked += len(keys)
        return [self.rates.get(each, 0.0) for each in keys]


def behind(policy: Fixed) -> Story:
    """An engine with more waiting keys than ten seconds pay for."""
    space = namespace(source=Source("db", Bucket(10.0, 10.0, now=0.0), concurrency=5))
    story = Story(space, policy=policy)
    story.miss(*map(key, range(1_000, 1_100)), at=0.0)
    return story


def test_keys_that_are_known_to_be_read_often_go_first():
    story = behind(Knowing({key(3): 5.0, key(1): 0.5}))
    story.miss(*map(key, range(6)), at=0.1)

    assert story.refresh(0.2) == [key(3), key(1)]
    assert story.refresh(0.3) == [key(1_000)], "and then the others as they came"


def test_many_readers_in_one_pack_count_as_one_by_one():
    story = behind(Knowing({}))
    story.asked({key(1): 1, key(2): 5, key(3): 2}, at=0.1)

    assert story.refresh(0.2) == [key(2), key(3)]


def test_a_key_that_a_pack_names_twice_has_one_heat_and_one_seat():
    class Unsteady(Fixed):
        """Each answer is higher than the one before."""

        def read_rates(self, keys, now):
            return [2.0**number for number in range(len(keys))]

    story = behind(Unsteady())
    before = story.engine.pending
    story.miss(key(1), key(1), at=0.1)

    assert story.engine.pending == before + 1
    assert story.refresh(0.2)[0] == key(1)


def test_a_reader_that_waits_counts_as_much_as_one_that_is_expected():
    story = behind(Knowing({key(1): 2 / 30.0}))
    story.asked({key(1): 1, key(2): 4}, at=0.1)

    assert story.refresh(0.2)[0] == key(2)


def test_the_policy_is_not_asked_while_a_second_pays_for_all_that_wait():
    policy = Knowing({})
    story = Story(namespace(), policy=policy)
    story.miss(*map(key, range(50)), at=0.0)

    assert policy.asked == 0
    assert story.refresh(0.0) == list(map(key, range(50)))
