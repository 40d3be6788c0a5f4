"""The result of a key's last refresh is known while its unit is among the last ones."""

from cacheupdater.core.answers import WRITTEN, Answer, Result
from cacheupdater.pipeline.recent import RECENT_UNITS, Recent, Refreshed


def test_the_last_refresh_of_a_key_is_told_with_its_own_answer():
    recent = Recent()
    recent.failed([b"a", b"b"], "the source is down", 1.0, 0.5)
    recent.answered([b"a", b"c"], [WRITTEN, Answer(Result.FAILED, why="too big")], 2.0, 0.01)
    assert recent.last(b"a") == Refreshed(2.0, 0.01, "written")
    assert recent.last(b"b") == Refreshed(1.0, 0.5, "error", "the source is down")
    assert recent.last(b"c") == Refreshed(2.0, 0.01, "failed", "too big")
    assert recent.last(b"d") is None


def test_only_the_last_units_are_remembered():
    recent = Recent()
    for number in range(RECENT_UNITS + 1):
        recent.answered([b"%d" % number], [WRITTEN], float(number), 0.0)
    assert recent.last(b"0") is None
    assert recent.last(b"1") is not None
