"""What the URL of an old queue makes of a drain."""

from __future__ import annotations

from cacheupdater.collector.old_queue import old_queue


def test_a_drain_is_in_the_group_of_the_updaters_and_takes_the_name_of_none_of_them():
    found = old_queue("kafka://a:9092/hints?group=shop&instance=updater-0&session_timeout=20s")
    assert (found.group, found.session, found.instance) == ("shop", 20.0, None)


def test_the_session_of_the_updaters_counts():
    assert old_queue("sqlite:////old.db?session_timeout=2s").session == 2.0
