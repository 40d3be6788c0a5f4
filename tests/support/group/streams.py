"""The queue of the group's stories in Redis Streams: what came into the streams, and what their owners did with it.

Finished packs leave the streams, so the test listens by MONITOR, which shows each command that Redis carries out, with Redis'
time: those of our scripts too, and of a script only what it has done. A server that ends takes its last lines with it, as far as
they were not sent: `Overheard` then listens to the next one at the same port.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import redis

from cacheupdater_client.protocol import streams
from group import packs
from group.ledger import NEVER, Commits

NAME = "hints"
_LINE = re.compile(rb"^\+(\d+)\.(\d{6}) \[\d+ [^\]]+\] (.*)\r$", re.MULTILINE)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)
_MEANT = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}
_AGAIN_S = 0.01
_CAUGHT_UP_S = 30.0


def _unescaped(word):
    return _ESCAPE.sub(
        lambda said: bytes([int(said[1], 16)]) if said[1] else _MEANT.get(said[2], said[2]), word
    )


class Command(NamedTuple):
    at: int  # microseconds of Unix time, by Redis
    words: list


class Overheard(threading.Thread):
    """All commands of one server, from now on until `close`."""

    def __init__(self, port, path):
        super().__init__(daemon=True)
        self._port, self._path = port, path
        self._ended, self._listens = threading.Event(), threading.Event()
        self.start()
        assert self._listens.wait(_CAUGHT_UP_S)

    def run(self):
        with self._path.open("ab") as out:
            while not self._ended.is_set():
                try:
                    with socket.create_connection(("127.0.0.1", self._port), 1.0) as peer:
                        peer.sendall(b"MONITOR\r\n")
                        self._copy(peer, out)
                except OSError:
                    self._ended.wait(_AGAIN_S)

    def _copy(self, peer, out):
        peer.settimeout(0.2)
        while not self._ended.is_set():
            try:
                said = peer.recv(1 << 20)
            except TimeoutError:
                continue
            if not said:
                break
            out.write(said)
            out.flush()
            self._listens.set()
        out.write(b"\r\n")  # a line that was cut off must not join the next

    def caught_up(self):
        """Waits until everything up to now was heard. Of a dead server, no more will come."""
        mark = uuid4().hex.encode()
        deadline = time.monotonic() + _CAUGHT_UP_S
        with redis.Redis(port=self._port) as plain, suppress(redis.ConnectionError):
            while mark not in self._path.read_bytes()[-(1 << 20) :]:
                assert time.monotonic() < deadline, "MONITOR does not follow"
                plain.echo(mark)
                time.sleep(0.05)

    def commands(self, *names):
        """Those of these names, in order."""
        found = []
        for seconds, micros, said in _LINE.findall(self._path.read_bytes()):
            name = said[1 : said.index(b'"', 1)].upper()
            if name in names:
                words = [_unescaped(each) for each in _WORD.findall(said)]
                found.append(Command(int(seconds) * 1_000_000 + int(micros), words))
        return found

    def close(self):
        self._ended.set()
        self.join(_CAUGHT_UP_S)


class StreamsQueue:
    """The streams of one server, which nobody else uses. `address` is the Redis' URL, or that of its Sentinels."""

    collector = None

    def __init__(self, address, *, port, partitions, folder):
        self._partitions = partitions
        self.port = port
        self.emit = f"{address}?stream={NAME}&partitions={partitions}"
        self.overheard = Overheard(port, Path(folder) / f"overheard-{port}.txt")
        self._keys = {
            key.encode(): number for number in range(partitions) for key in streams.keys_of(NAME, number)
        }

    def is_free(self):
        return True  # no process holds up a Redis

    def close(self):
        self.overheard.close()

    def url(self, session, instance=None):
        """The queue's URL in the configuration of a member. Members of a depot have no names."""
        return f"{self.emit}&session_timeout={session}s"

    @property
    def behind(self):
        """The number of packs that are not finished."""
        with redis.Redis(port=self.port) as plain:
            return sum(plain.xlen(key) for key in self._keys if key.endswith((b":touches", b":kept")))

    def records(self):
        """Each pack that was ever added, and when it was removed alone."""
        self.overheard.caught_up()
        added, removed = [], {}
        for at, words in self.overheard.commands(b"XADD", b"XDEL"):
            if words[1] not in self._keys:
                continue
            if words[0].upper() == b"XADD":
                added.append((self._keys[words[1]], _number(words[2]), words[4]))
            else:
                removed |= {(self._keys[words[1]], _number(each)): at for each in words[2:]}
        found = packs.records(added)
        places = zip(found.partitions.tolist(), found.offsets.tolist(), strict=True)
        return found._replace(removed=np.array([removed.get(each, NEVER) for each in places], dtype=np.int64))

    def commits(self):
        self.overheard.caught_up()
        found = [
            (self._keys[words[1]], int(words[5]), at)
            for at, words in self.overheard.commands(b"HSET")
            if words[1] in self._keys and words[2] == b"scan"
        ]
        return Commits(*np.array(found, dtype=np.int64).reshape(-1, 3).T)

    def members(self):
        """The names of all that have joined, and of some that are gone."""
        return set(self._roster(b"member:"))

    def owners(self):
        """The name of each partition's owner, as the roster says now."""
        return {int(partition): said.split()[1] for partition, said in self._roster(b"owner:").items()}

    def _roster(self, prefix):
        with redis.Redis(port=self.port) as plain:
            said = plain.hgetall(streams.roster_key(NAME)).items()
        return {
            field.removeprefix(prefix).decode(): entry.decode()
            for field, entry in said
            if field.startswith(prefix)
        }

    def claims(self):
        """Each claim that counted: its partition, and when it was, in microseconds of Unix time."""
        self.overheard.caught_up()
        return [
            (self._keys[words[1]], at)
            for at, words in self.overheard.commands(b"HSET")
            if words[1] in self._keys and words[2] == b"epoch"
        ]


def _number(entry):
    return int(entry.partition(b"-")[0])
