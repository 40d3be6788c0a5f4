"""Logs: one safe line per record, JSON for machines, text for people, no secrets."""

from __future__ import annotations

import io
import json
import logging

import pytest

from cacheupdater.cli import logs

_log = logging.getLogger("cacheupdater.test")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_logs_are_json_lines_where_nobody_watches():
    stream = io.StringIO()
    logs.configure("info", stream)
    _log.info("took %d rows from %s", 5, "redis://u:c4n4ry@h")
    _log.debug("not shown")
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "cacheupdater.test",
        "message": "took 5 rows from redis://***",
    }


def test_lines_of_a_worker_name_it():
    machine, person = io.StringIO(), Terminal()
    for stream in (machine, person):
        logs.configure("info", stream, worker=0)
        _log.info("partition 3 is ours")
    assert json.loads(machine.getvalue())["worker"] == 0
    assert person.getvalue().endswith(" info    worker 0: cacheupdater.test: partition 3 is ours\n")


@pytest.mark.parametrize("stream_type", [io.StringIO, Terminal])
def test_log_line_cannot_be_forged_or_leak(stream_type):
    stream = stream_type()
    logs.configure("debug", stream)
    long = "x" * 16_360 + " redis://u:c4n4ry" + "y" * 200 + "@h"  # a cut in the middle of the password
    for message in ("key\nERROR forged", "\x1b[2Jcleared", "\u202eback", long):
        _log.warning("%s", message)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert "\x1b" not in stream.getvalue()
    assert "c4n4ry" not in stream.getvalue()


def test_log_shows_a_traceback_for_people_line_by_line():
    stream = Terminal()
    logs.configure("info", stream)
    try:
        int("redis://u:c4n4ry@h")
    except ValueError:
        _log.exception("failed")
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith("error   cacheupdater.test: failed")
    assert lines[-1] == "ValueError: invalid literal for int() with base 10: 'redis://***"
    assert len(lines) > 3


def test_drivers_stay_silent_when_we_are_talkative():
    stream = io.StringIO()
    logs.configure("debug", stream)
    logging.getLogger("sqlalchemy.engine").info("SELECT with parameters")
    logging.getLogger("aiokafka").debug("bytes of a message")
    logging.getLogger("sqlalchemy.pool").warning("something to know")
    assert "SELECT" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
