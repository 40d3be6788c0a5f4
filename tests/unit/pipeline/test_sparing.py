"""An outage says one line a second, and how many it kept back."""

from cacheupdater.pipeline.sparing import Sparing


def test_the_first_line_is_said_and_the_next_ones_wait_a_second_with_their_number():
    sparing = Sparing()
    assert sparing.repeats(("product", "unavailable"), 10.0) == 0
    assert [sparing.repeats(("product", "unavailable"), 10.0 + n / 10) for n in range(1, 10)] == [None] * 9
    assert sparing.repeats(("product", "unavailable"), 11.0) == 9
    assert sparing.repeats(("product", "unavailable"), 12.5) == 0


def test_lines_about_other_things_are_said_at_once():
    sparing = Sparing()
    assert sparing.repeats(("product", "unavailable"), 10.0) == 0
    assert sparing.repeats(("product", "faulty"), 10.0) == 0
    assert sparing.repeats(("basket", "unavailable"), 10.0) == 0
