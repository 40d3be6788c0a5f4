"""Numbers in sentences."""

import pytest

from cacheupdater.core.words import counted


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (counted(0, "key"), "0 keys"),
        (counted(1, "key"), "1 key"),
        (counted(200, "key"), "200 keys"),
        (counted(1, "reply", "replies"), "1 reply"),
        (counted(2, "reply", "replies"), "2 replies"),
    ],
)
def test_one_is_no_plural(said, words):
    assert said == words
