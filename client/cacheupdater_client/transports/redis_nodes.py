"""Connections to the Redis, or to the nodes of the cluster, that holds the streams: one for each, for the sender's thread.

A link makes one `Nodes` for each of its connections. redis-py's bare `Connection` speaks to the servers. It is no client, so
neither `instrument` nor a tracer of clients sees what goes through it, and nothing here leaves a hint. Each wait is short and
bounded; after any error the link gives all of them up. Where slots move, or the primary is another one, commands fail until the
next `Nodes` has asked anew.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.crc import key_slot
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from cacheupdater_client.protocol import streams

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWER_S = 0.5  # for a connect, or for what one turn sends, at most 4 MiB: a Redis that is near takes some milliseconds
ASK_S = 0.1  # for an answer of a Sentinel, or of a node about its cluster: one that hangs leaves time to ask the next
ASK_MAX = 5  # of them in one turn

Command = tuple[bytes | str | int, ...]


class Nodes:
    """The servers of one address."""

    def __init__(self, address: streams.Address) -> None:
        self._address = address
        self._seeds = streams.nodes(address)
        self._connections: dict[streams.Place, Any] = {}
        self._slots: list[
            tuple[int, int, streams.Place]
        ] = []  # first, last, owner; none: there is one server only
        self._only = next(iter(self._seeds))  # the server, where there is one
        name = streams.primary_of(address)
        if streams.is_cluster(address):
            place, said = self._ask(("CLUSTER", "SLOTS"), "no node of the Redis Cluster knows the slots")
            self._slots = [_range(each, place) for each in said]
        elif name:
            question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
            _, said = self._ask(question, "no Sentinel knows the primary")
            self._only = said[0].decode(), int(said[1])

    def _ask(self, question: Command, failure: str) -> tuple[streams.Place, Any]:
        """The first answer of a seed, and who gave it."""
        failed: Exception = LookupError(failure)
        seeds = list(self._seeds)
        for place in random.sample(seeds, min(ASK_MAX, len(seeds))):
            connection = _connection(self._seeds[place], place, ASK_S)
            try:
                connection.connect()
                connection.send_command(*question, check_health=False)
                said = connection.read_response(disable_decoding=True)
            except (OSError, RedisError) as e:
                failed = e
            else:
                if said:
                    return place, said
            finally:
                connection.disconnect()
        raise failed

    def exchange(self, calls: Sequence[tuple[str, Command]]) -> list[object]:
        """The reply to each command, in order. Each is sent to the owner of its key; an error reply is returned."""
        shares: dict[streams.Place, list[int]] = {}
        for at, (key, _) in enumerate(calls):
            shares.setdefault(self._owner(key), []).append(at)
        replies: list[object] = [None] * len(calls)
        for place, share in shares.items():
            for at, reply in zip(
                share, self._exchange_with(place, [calls[at][1] for at in share]), strict=True
            ):
                replies[at] = reply
        return replies

    def run(self, text: str, sha: str, calls: Sequence[tuple[str, Command]]) -> list[object]:
        """The reply of a script to each of these arguments; it is loaded where a server does not know it."""
        commands = [(key, ("EVALSHA", sha, *said)) for key, said in calls]
        replies = self.exchange(commands)
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            self.exchange([(commands[at][0], ("SCRIPT", "LOAD", text)) for at in unknown])
            for at, reply in zip(unknown, self.exchange([commands[at] for at in unknown]), strict=True):
                replies[at] = reply
        return replies

    def _owner(self, key: str) -> streams.Place:
        if not self._slots:
            return self._only
        slot = key_slot(key.encode())
        for first, last, place in self._slots:
            if first <= slot <= last:
                return place
        raise LookupError("no node of the Redis Cluster owns a slot that is needed")

    def _exchange_with(self, place: streams.Place, commands: Sequence[Command]) -> list[object]:
        connection = self._connections.get(place)
        if connection is None:
            connection = _connection(streams.url_of(self._address, place), place, ANSWER_S)
            connection.connect()
            self._connections[place] = connection
        connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        return [_reply(connection) for _ in commands]

    def close(self) -> None:
        """Closes all connections. In a forked child that leaves the parent's alone."""
        while self._connections:
            self._connections.popitem()[1].disconnect()


def check(address: streams.Address) -> None:
    """ValueError if redis-py cannot read the options of the URL. Connects to nothing."""
    place = next(iter(streams.nodes(address)))
    try:
        _connection(streams.url_of(address, place), place, ANSWER_S)
    except (TypeError, ValueError, RedisError) as e:
        raise ValueError("has an option that redis-py cannot read") from e


def _connection(url: str, place: streams.Place, seconds: float) -> Any:
    """redis-py's, not open yet. The options are those of the URL; its timeouts and tries are ours."""
    read: Any = parse_url  # redis-py's: it has no types
    options: dict[str, Any] = read(url)
    kind = options.pop("connection_class", Connection)
    options |= {"host": place[0], "port": place[1], "protocol": 2, "decode_responses": False}
    options |= {"socket_connect_timeout": seconds, "socket_timeout": seconds, "retry": Retry(NoBackoff(), 0)}
    return kind(**options)


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response(disable_decoding=True)
    except ResponseError as e:
        return e


def _range(said: Any, asked: streams.Place) -> tuple[int, int, streams.Place]:
    """A line of CLUSTER SLOTS. A node that does not know its own name leaves the host out or says "?"."""
    first, last, owner, *_ = said
    host = (owner[0] or b"").decode()
    return int(first), int(last), (asked[0] if host in {"", "?"} else host, int(owner[1]))
