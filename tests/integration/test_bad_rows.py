"""One row in a hundred is poison: the others are refreshed as often as without it, by a real updater.

The control is the same run before the rows become bad. Each poisoned key stands in quarantine once, with the loader's own error.
After the rows are mended, an operator's `quarantine retry` loads them.
"""

from __future__ import annotations

import io
import json
import re
import threading
import time
from contextlib import redirect_stdout
from itertools import count

import pytest
from live.bad_rows import is_healthy
from live.updater_process import config, eventually

from cacheupdater.cli import main
from cacheupdater_client import Redis

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(240)]

KEYS = [f"item:{number}" for number in range(10_000)]
POISONED = {key for number, key in enumerate(KEYS) if not is_healthy(number)}
BEAT_S = 0.1
READS = 100  # a beat, so that every key is read again after ten seconds
HELD = "6s"  # less than that
SECONDS = 10.0  # of control, and twice as much of poison: the parts of a unit are loaded one after the other
KEPT = 0.95
ERROR = re.compile(r"live\.bad_rows:rows raised ValueError at .*/bad_rows\.py:\d+")
BUDGET = "6000/s"  # six times what the application needs: a unit with a poisoned key is cut smaller, and each part is paid


class Application(threading.Thread):
    """As many reads as were due by now: a machine that holds it up delays them, and no more."""

    def __init__(self, redis_url, emit):
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._url, self._emit = redis_url, emit

    def run(self):
        began = time.monotonic()
        with Redis.from_url(self._url, emit=self._emit) as client:
            for beat in count():
                if self._ended.wait(max(0.0, began + beat * BEAT_S - time.monotonic())):
                    return
                first = beat * READS % len(KEYS)
                client.mget(KEYS[first : first + READS])

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join()


def quarantine(updater, *arguments):
    """What `cacheupdater quarantine` prints."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(["quarantine", *arguments, "-c", str(updater.file)]) == 0
    return said.getvalue()


def healthy(log, since, until):
    """Healthy rows a second."""
    lines = (line.split() for line in log.read_text().splitlines())
    return sum(int(rows) for at, rows in lines if since <= float(at) < until) / (until - since)


def make(updaters, redis_url, files):
    """An updater of the bad rows."""
    load = {"source": "main", "python": "live.bad_rows:rows"}
    items = {"item": {"key": "item:{id:int}", "load": load}}
    settings = config(redis_url, {"main": {"budget": BUDGET}}, items, every=HELD)
    return updaters.make(settings, environment={name: str(path) for name, path in files.items()})


def test_poisoned_rows_take_nothing_from_the_others_and_are_loaded_when_mended(
    redis_url, updaters, plain, tmp_path, record_property
):
    log, bad, token = tmp_path / "loads", tmp_path / "bad", tmp_path / "token"
    token.write_text("an-operators-token-of-some-length")
    token.chmod(0o600)
    updater = make(updaters, redis_url, {"LOADER_LOG": log, "BAD_ROWS": bad})
    admin = {"listen": f"127.0.0.1:{updater.port}", "token_file": str(token)}
    updater.file.write_text(json.dumps(json.loads(updater.file.read_text()) | {"admin": admin}))
    updater.start()
    with Application(redis_url, updater.emit):
        eventually(lambda: None not in plain.mget(KEYS))
        began = time.monotonic()
        time.sleep(SECONDS)
        broken = time.monotonic()
        bad.touch()
        time.sleep(2 * SECONDS)
        mended = time.monotonic()

    control, kept = healthy(log, began, broken), healthy(log, broken, mended)
    record_property("figure: healthy rows a second, beside no poison", round(control))
    record_property("figure: healthy rows a second, beside 1 % poison, % of that", 100 * kept / control)
    assert kept >= KEPT * control, (kept, control)

    listed = json.loads(quarantine(updater, "list", "-o", "json"))["keys"]
    assert sorted(each["key"] for each in listed) == sorted(POISONED)
    # the kind of error and its place; a message could hold what is in the row
    assert [each for each in listed if not ERROR.fullmatch(each["error"])] == []
    bad.unlink()
    plain.delete(*POISONED)
    assert quarantine(updater, "retry", "--all") == f"retried {len(POISONED)}\n"
    eventually(lambda: None not in plain.mget(*POISONED))
    assert json.loads(quarantine(updater, "list", "-o", "json"))["keys"] == []
