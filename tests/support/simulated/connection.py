"""A stand-in for redis-py's connection below the real writer: commands go in as bytes, the scripts' raw replies come out.

Everything above it is the real writer: its sessions, its cuts, its handling of replies, of errors and of silence. This module
reads the scripts' arguments and carries them out on `MemoryRedis`, with one `_reply` per command. `writer` decides the result
for a single key, so that a planted fault may change it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from redis import exceptions as redis_errors

from cacheupdater.adapters.writer_redis.looks import LOOK
from cacheupdater.adapters.writer_redis.sessions import Session
from cacheupdater.core.answers import Result
from cacheupdater_client.protocol import fence, lease
from cacheupdater_client.protocol.fence import Failed, Refused
from cacheupdater_client.protocol.lease import Grace
from simulated.history import CacheEvent
from simulated.lost import Lost

NAMES = {form[0]: form for form in ("type", "json", "msgpack", "string", "hash")}
PAGE_KEYS = 2  # of a scan
SECOND = 1_000_000_000  # of a token
SCRIPTS = (fence.COMMIT, fence.INVALIDATE, lease.PROLONG, LOOK)

RESULTS = {
    fence.WRITTEN: Result.WRITTEN,
    fence.ADOPTED: Result.ADOPTED,
    fence.UNCHANGED: Result.UNCHANGED,
    fence.DUPLICATE: Result.DUPLICATE,
    fence.TOO_OLD: Result.TOO_OLD,
    fence.FOREIGN: Result.FOREIGN,
}
REFUSALS = (  # of a whole call, for now
    partial(redis_errors.OutOfMemoryError, "command not allowed when used memory > 'maxmemory'."),
    partial(redis_errors.ReadOnlyError, "You can't write against a read only replica."),
    partial(redis_errors.BusyLoadingError, "Redis is loading the dataset in memory"),
)
KEY_REFUSED = "The user executing the script can't access at least one of the keys mentioned in the script"


class Piece(bytes):
    """A packed command, and the asyncio task that sends it."""

    def __new__(cls, packed, task):
        piece = super().__new__(cls, packed)
        piece.task = task
        return piece


class Commands(list):
    """The commands of one call, and the asyncio task that makes it."""

    def __init__(self, commands):
        super().__init__(commands)
        self.task = asyncio.current_task()


class SimSession(Session):
    """A session sends calls of several tasks together, so each command says whose it is."""

    async def call(self, commands):
        return await super().call(Commands(commands))

    def _packed(self, commands):
        return [Piece(packed, commands.task) for packed in super()._packed(commands)]


class SimConnection:
    """The part of a socket that the writer uses."""

    def __init__(self, cache, writer, world):
        self._cache = cache
        self._writer = writer
        self._world = world
        self._sent = None
        self._replies = deque()

    async def connect(self):
        self._writer.process.check()
        if self._cache.down:
            raise redis_errors.ConnectionError("connection refused")

    async def disconnect(self, *, nowait=False):
        """Calls under way continue."""

    def pack_command(self, *args):
        """As redis-py does without hiredis."""
        texts = [each if isinstance(each, bytes) else str(each).encode() for each in args]
        return [b"".join([b"*%d\r\n" % len(texts), *(b"$%d\r\n%s\r\n" % (len(t), t) for t in texts)])]

    async def send_packed_command(self, packed, *, check_health):
        self._writer.process.check()
        self._sent = [(piece.split(b"\r\n")[2::2], self._writer.task_of(piece.task)) for piece in packed]

    async def read_response(self):
        if not self._replies:
            serve = partial(self._serve, self._sent)
            try:
                self._replies.extend(await self._cache.call(serve, kind="writer"))
            except Lost as e:
                raise redis_errors.ConnectionError(str(e)) from e
            self._writer.process.check()
        reply = self._replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply

    # --- at the server ----------------------------------------------------------------------------------

    def _serve(self, sent):
        """Serves the commands, each for its task. Raises Lost between two commands of one exchange."""
        replies = []
        for command, task in sent:
            if replies and self._world.faults("redis_partial"):
                raise Lost("the connection was lost between two calls")
            replies.append(self._reply(command, task))
        return replies

    def _reply(self, command, task):
        name, *args = command
        if name == b"TIME":
            task.timed(self._world.seen.clock())
            return self._time()
        if name == b"SCRIPT":
            script = next(each for each in SCRIPTS if each.text.encode() == args[1])
            self._cache.scripts.add(script.sha.encode())
            return script.sha.encode()
        if name == b"SCAN":
            return self._scan(int(args[0]), args[2])
        return self._evaluate(args, task)

    def _scan(self, cursor, like):
        """A page of two keys, whatever the caller wants."""
        known, server = self._world.keys, self._cache.server
        page = [key for key in known[cursor : cursor + PAGE_KEYS] if key.startswith(like.rstrip(b"*"))]
        cursor = cursor + PAGE_KEYS if cursor + PAGE_KEYS < len(known) else 0
        return [b"%d" % cursor, [key for key in page if server.get(key) is not None]]

    def _time(self):
        seconds, rest = divmod(self._cache.server.token(), SECOND)
        return [b"%d" % seconds, b"%d" % (rest // 1000)]

    def _look(self, key, most):
        server = self._cache.server
        value, floor = server.get(key), server.floor(key)
        here = b"none" if value is None else b"string"
        return [self._time(), here, None if floor is None else b"%d" % floor, value if most else None]

    def _evaluate(self, args, task):
        sha, count, *rest = args
        faults, names = self._world.faults, rest[: int(count)]
        if sha not in self._cache.scripts:
            return redis_errors.NoScriptError("No matching script. Please use EVAL.")
        if sha == LOOK.sha.encode():
            return self._look(names[0], int(rest[-1]))
        if faults("redis_refuses"):
            return self._world.random.choice(REFUSALS)()
        if sha == lease.PROLONG.sha.encode():
            return self._prolong(names[::3], rest[len(names) :], task)
        commits = sha == fence.COMMIT.sha.encode()
        if (commits or len(names) > 2) and faults(
            "redis_part_refused"
        ):  # a call with one key succeeds in the end
            return redis_errors.NoPermissionError(KEY_REFUSED)
        script = self._commit if commits else self._invalidate
        return script(names[::2], rest[len(names) :], task)

    def _commit(self, keys, args, task):
        stamp, _, _, life, form, kinds, *data = args
        data, now, replies = iter(data), self._world.seen.clock(), []
        for key, kind in zip(keys, kinds.decode(), strict=True):
            ttl, value = int(next(data)), next(data) if kind == "s" else None
            if self._world.faults("redis_key_failed"):
                replies.append(self._world.random.choice((b"-ERR refused", b"-OOM command not allowed")))
                task.land(key, now, Result.FAILED)
                continue
            before = self._cache.server.get(key)
            outcome = self._writer.put(
                int(stamp), (key, value, ttl), int(life), form=NAMES.get(form.decode())
            )
            replies.append(_raw(outcome))
            task.land(key, now, _result(outcome))
            self._cache.look_after(key, before, self._writer.process.name)
            if outcome in {fence.WRITTEN, fence.ADOPTED, fence.UNCHANGED}:
                version = None if value is None else int(value)
                self._cache.log(CacheEvent(now, key, "write", version, begun=task.token_at))
        return replies

    def _prolong(self, keys, args, task):
        _, ttl_ms, fail_safe_ms, _, letter = args
        grace, form = Grace(int(ttl_ms), int(fail_safe_ms)), NAMES.get(letter.decode())
        now, replies = self._world.seen.clock(), []
        for key in keys:
            replies.append(self._writer.prolong_one(key, grace, form))
            if replies[-1] == lease.PROLONGED:
                self._world.seen.note("redis", "prolonged", key)
                task.prolonged(key, now)
        return replies

    def _invalidate(self, keys, args, task):
        hold_off_us, _, _, letters, marks = args
        forms = {key: NAMES[form] for key, form in zip(keys, letters.decode(), strict=False) if form != "-"}
        now, server = self._world.seen.clock(), self._cache.server
        before = [server.get(key) for key in keys]
        only_ours = {key for key, mark in zip(keys, marks.decode(), strict=False) if mark == "1"}
        outcomes = server.invalidate(
            *keys, hold_off_ms=int(hold_off_us) // 1000, forms=forms, only_ours=only_ours
        )
        for key, value in zip(keys, before, strict=True):
            self._cache.look_after(key, value, self._writer.process.name)
        task.remove([self._cache.log(CacheEvent(now, key, "invalidate", covers=now)) for key in keys], now)
        return outcomes


def _raw(outcome):
    """The outcome as the script would return it."""
    if isinstance(outcome, Refused):
        return b"%d" % outcome.floor
    return b"-" + outcome.text.encode() if isinstance(outcome, Failed) else outcome


def _result(outcome):
    """The key's result at the server, however the writer reads the reply."""
    if isinstance(outcome, Refused):
        return Result.REFUSED
    return Result.FAILED if isinstance(outcome, Failed) else RESULTS[outcome]
