"""Keys of nobody are remembered, in a bounded number; those that come again are remembered longest."""

from __future__ import annotations

from stories.engine import Story, namespace

from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.strangers import Strangers


def keys(count: int, first: int = 0) -> list[bytes]:
    return [b"p:x%d" % at for at in range(first, first + count)]


def test_what_was_put_in_is_found_again():
    strangers = Strangers(100)
    strangers.put(keys(10))

    assert strangers.among([*keys(3), b"p:1"]) == set(keys(3))


def test_they_are_bounded_and_who_comes_again_stays():
    strangers = Strangers(100)
    for at in range(50):
        strangers.put(keys(20, 20 * at))
        strangers.put(strangers.among(keys(3)) and ())
        assert len(strangers) <= 100

    assert strangers.among(keys(3)) == set(keys(3))
    assert not strangers.among(keys(3, 20))


class Asked(Keyspace):
    """Tells which keys it was asked for."""

    asked: tuple[bytes, ...] = ()

    def resolve_many(self, keys):
        self.asked += tuple(keys)
        return super().resolve_many(keys)


def test_a_key_of_nobody_is_looked_for_once():
    """Whether its prefix, or its unit, has told that it is nobody's; each of its hints is counted."""
    space = namespace("p")
    story = Story(space, namespace("q"))
    asked = Asked([(space.pattern, space)])
    story.engine._keyspace = story.engine._seating._keyspace = asked
    story.touch(b"r:1", b"p:x", b"p:7", at=0.0)
    assert story.refresh(0.0) == [b"p:7"]
    for at in (1.0, 2.0):
        story.touch(b"r:1", b"p:x", at=at)
        story.miss(b"r:1", b"p:x", at=at)
        assert story.starts(at) == []

    assert asked.asked == (b"r:1", b"p:x", b"p:7")
    assert story.count("dropped", "unknown") == 2 + 4 * 2
    assert story.done == story.engine.cursor.scan
