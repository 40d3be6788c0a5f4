"""`cacheupdater queue` before it meets a server that answers: usage, questions, and queues that nobody can see."""

from __future__ import annotations

import json

import pytest
from suite.commands import on_a_queue, put

from cacheupdater.adapters.writer_redis import RedisWriter
from cacheupdater.core.answers import Answer, Result
from cacheupdater_client.protocol.wire import CHANGE, TOUCH, encode_pack


@pytest.fixture
def queue(tmp_path, capsys):
    run = on_a_queue(tmp_path, capsys)
    return lambda url, *words: run(url, "queue", *words)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/hints.db?partitions=3"


class Terminal:
    """A person who gives one answer."""

    def __init__(self, answer):
        self._answer = answer

    def isatty(self):
        return True

    def readline(self, *_):
        return self._answer


@pytest.mark.parametrize("verb", ["lag", "purge"])
def test_a_queue_in_memory_says_where_to_look_instead(queue, verb):
    code, out, err = queue("memory://", verb, *(["--yes"] if verb == "purge" else []))
    assert (code, out) == (78, "")
    assert "in the updater's own memory" in err
    assert "cacheupdater_pending" in err


def test_a_queue_that_nobody_has_made_is_not_made(queue, url, tmp_path):
    assert queue(url, "lag") == (0, "nobody has used this queue yet\n", "")
    assert queue(url, "purge", "--yes")[0] == 0
    assert not (tmp_path / "hints.db").exists()


def test_lag_has_a_line_for_each_partition_that_is_behind_and_the_sum(queue, url):
    put(url)
    assert queue(url, "lag") == (0, "nothing waits in 3 partitions\n", "")
    put(url, (1, encode_pack(CHANGE, 1, [b"a"])), (1, b"no pack"), (2, b"no pack"))
    code, out, _ = queue(url, "lag")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["PARTITION", "PACKS", "URGENT", "OLDEST", "OWNER"]
    assert lines[1][:3] == ["1", "2", "1"]
    assert lines[1][4:] == ["s", "-"]
    assert lines[2] == ["2", "1", "0", "-", "-"]
    assert out.splitlines()[-1] == "3 packs in 2 of 3 partitions"
    said = json.loads(queue(url, "lag", "-o", "json")[1])
    assert [each["packs"] for each in said] == [0, 2, 1]
    assert said[1].keys() == {"partition", "owner", "packs", "urgent", "age"}
    assert [each["urgent"] for each in said] == [0, 1, 0]


def test_without_a_terminal_a_purge_needs_a_yes(queue, url):
    put(url, (0, encode_pack(TOUCH, 1, [b"a"])))
    code, out, err = queue(url, "purge")
    assert (code, out) == (2, "")
    assert "say --yes" in err
    assert "1 pack in 1 of 3" in queue(url, "lag")[1]


@pytest.mark.parametrize(("answer", "left"), [("", 1), ("\n", 1), ("no\n", 1), ("y\n", 0)])
def test_at_a_terminal_a_purge_shows_what_would_go_and_asks(queue, url, monkeypatch, answer, left):
    put(url, (0, encode_pack(TOUCH, 1, [b"a"])))
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, out, _ = queue(url, "purge")
    assert code == 0
    assert "1 pack in 1 of 3 partitions" in out
    assert ("nothing was purged" in out) is bool(left)
    assert [each["packs"] for each in json.loads(queue(url, "lag", "-o", "json")[1])] == [left, 0, 0]


def test_a_cache_that_is_away_keeps_the_packs_of_changes(queue, url):
    put(url, (0, encode_pack(CHANGE, 1, [b"banner:a"])), (1, encode_pack(CHANGE, 1, [b"banner:b"])))
    code, out, err = queue(url, "purge", "--yes")
    assert code == 70
    assert "purged 0 partitions" in out
    assert "partition 0 was not purged" in err
    assert [each["packs"] for each in json.loads(queue(url, "lag", "-o", "json")[1])] == [1, 1, 0]


def test_what_redis_says_cannot_write_to_the_terminal(queue, url, monkeypatch):
    async def invalidate(_, keys, __):
        return [Answer(Result.FAILED, why="NOPERM \x1b[2J")] * len(keys)

    monkeypatch.setattr(RedisWriter, "invalidate", invalidate)
    put(url, (0, encode_pack(CHANGE, 1, [b"banner:a"])))
    code, _, err = queue(url, "purge", "--yes")
    assert code == 70
    assert "\x1b" not in err
    assert "Redis does not remove banner:a: NOPERM" in err


def test_nobody_answers_ends_with_70(queue):
    code, out, err = queue("redis://127.0.0.1:1/0?stream=hints", "lag")
    assert (code, out) == (70, "")
    assert "cacheupdater: " in err
