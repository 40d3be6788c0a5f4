"""Values in Redis that have a name of ours and cannot be ours."""

from __future__ import annotations

from cacheupdater.pipeline.unsound import Unsound
from cacheupdater.testing.recording_observer import RecordingObserver


def test_it_is_counted_each_time_and_said_once_of_each_kind(caplog):
    observer = RecordingObserver()
    unsound = Unsound(observer)
    unsound.found("floor", 0)
    assert not caplog.messages
    for _ in range(3):
        unsound.found("floor", 2)
        unsound.found("fleet")
    assert observer.total("unsound", reason="floor") == 6
    assert observer.total("unsound", reason="fleet") == 3
    assert [("__crs" in said, "fleet:" in said) for said in caplog.messages] == [(True, False), (False, True)]
