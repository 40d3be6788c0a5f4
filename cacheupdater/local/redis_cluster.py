"""A Redis Cluster of one's own: six local servers, three primaries with a replica each, to break and to reshape.

Tests use it where one node is not enough. It is made by `CLUSTER` commands alone, so it needs only a `redis-server`. Its
nodes are `RedisServer`s: kill, start, pause and resume them as you like, then call `wait_until_settled`. A node that is
started again remembers its place; its keys are gone, as after any crash. A node that is silent for a second counts as dead,
so a replica takes over within about two. A slot can be moved step by step, with checks in between.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import RedisError

from cacheupdater.local.ports import is_free
from cacheupdater.local.redis_server import RedisServer
from cacheupdater.local.redis_telling import Telling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cacheupdater.local.redis_telling import Reply, Word

SILENCE_MS = 1000  # a node that is silent for so long counts as dead (Redis' own default is 15 s)
SETTLE_TIMEOUT_S = 30.0  # usually 2 to 4 s after a start or a death, on a busy machine more
_BUS = 10_000  # nodes speak to each other at their port plus this
_PORTS = range(
    20_000, 22_700
)  # the buses too lie below the ports of outgoing connections, which begin at 32,768
_SYSTEM = random.SystemRandom()  # processes with one seed must not draw the same ports
_ATTEMPTS = 20  # at a port that is free together with its bus port
_HANDOVERS = 3  # attempts at one
_ATTEMPT_S = 5.5  # Redis gives up an attempt after five seconds
_POLL_S = 0.02


class Node(NamedTuple):
    """One line of a node's view of the cluster."""

    server: RedisServer
    flags: frozenset[str]  # "master" or "slave", "fail", ...
    slots: tuple[range, ...]
    primary: str  # id of the primary that it copies; "-" for a primary
    id: str
    epoch: str  # of its configuration; of a replica, its primary's

    def has(self, slot: int) -> bool:
        return any(slot in part for part in self.slots)


class RedisCluster:
    """A cluster, started by `start` or `with`. The slots are distributed evenly."""

    def __init__(
        self,
        executable: Path | None = None,
        *,
        primaries: int = 3,
        replicas: int = 1,
        options: Sequence[str] = (),
    ) -> None:
        """`replicas` is per primary; `options` go to the command line of every node.

        While a node is gone, the slots of the others stay usable. Redis' own default differs:
        `--cluster-require-full-coverage yes`.
        """
        ours = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(SILENCE_MS)]
        ours += ["--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no"]
        ours += ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
        count = primaries * (1 + replicas)
        self.nodes = tuple(RedisServer(executable, options=[*ours, *options]) for _ in range(count))
        self._primaries = primaries
        self._ids: dict[str, RedisServer] = {}
        self._telling = Telling()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    # --- life -------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when every node knows every slot's owner and every replica has its copy."""
        for node in self.nodes:
            _start_with_bus(node)
        self._ids = {self._telling.text(node, "CLUSTER", "MYID"): node for node in self.nodes}
        ids = {node: each for each, node in self._ids.items()}
        edges = [each * REDIS_CLUSTER_HASH_SLOTS // self._primaries for each in range(self._primaries + 1)]
        for epoch, node in enumerate(self.nodes, 1):
            self.tell(node, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
            self.tell(self.nodes[0], "CLUSTER", "MEET", "127.0.0.1", node.port)
        for node, (first, end) in zip(self.nodes, pairwise(edges), strict=False):
            self.tell(node, "CLUSTER", "ADDSLOTS", *range(first, end))
        self._wait("all know each other", lambda: all(self._knows_all(node) for node in self.nodes))
        for at, node in enumerate(self.nodes[self._primaries :]):
            self.tell(node, "CLUSTER", "REPLICATE", ids[self.nodes[at % self._primaries]])
        self.wait_until_settled()
        return self

    def close(self) -> None:
        """Ends all nodes and removes their files."""
        self._telling.close()
        for node in self.nodes:
            node.kill()  # nothing to save, and no failover in between
            node.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def heal(self) -> None:
        """Repairs the cluster after any test: all nodes run as primaries or complete replicas, no slot is moving, no key is left.

        Slots stay where they were moved to.
        """
        for node in self.nodes:
            node.resume()
            if not self._telling.runs(node):
                node.kill()
                node.start()
        self.wait_until_settled()
        for node in self.primaries():
            for slot in self._on_their_way(node):
                self.tell(node, "CLUSTER", "SETSLOT", slot, "STABLE")
        self.flush()

    def flush(self) -> None:
        """Removes all keys and scripts."""
        for node in self.primaries():
            self.tell(node, "FLUSHALL")
        for node in self.nodes:
            if self._telling.runs(node):
                self.tell(node, "SCRIPT", "FLUSH")

    def wait_until_settled(self) -> None:
        """Waits until all running nodes agree on every slot's owner and on all epochs, and every replica is connected."""
        try:
            self._wait("all agree", self._is_settled)
        except TimeoutError as e:
            raise TimeoutError(f"{e}\n{self._accounts()}") from None

    # --- who is who -------------------------------------------------------------------------------------

    def owner(self, of: int | bytes | str) -> RedisServer:
        """The primary of a slot, or of a key's slot."""
        return self.owners([of])[0]

    def owners(self, of: Iterable[int | bytes | str]) -> list[RedisServer]:
        """The primaries of slots, or of keys' slots: the newest that any running node has heard of.

        Nodes hear of a failover or a move one after the other. Redis itself goes by the highest epoch.
        """
        views = [self.view(node) for node in self.nodes if self._telling.runs(node)]
        newest = sorted(
            (each for view in views for each in view if each.slots), key=lambda each: -int(each.epoch)
        )
        return [next(each.server for each in newest if each.has(slot)) for slot in map(_slot, of)]

    def primaries(self) -> list[RedisServer]:
        """The running nodes that own slots."""
        return [each.server for each in self.view() if each.slots and self._telling.runs(each.server)]

    def replicas(self, of: RedisServer) -> list[RedisServer]:
        """The running replicas of a primary."""
        view = self.view()
        [primary] = [each.id for each in view if each.server is of]
        return [each.server for each in view if each.primary == primary and self._telling.runs(each.server)]

    def view(self, asked: RedisServer | None = None) -> list[Node]:
        """The cluster as one node sees it: `asked`, or the first node that runs."""
        asked = asked or next(node for node in self.nodes if self._telling.runs(node))
        said = self._telling.text(asked, "CLUSTER", "NODES")
        return [self._node(line.split()) for line in said.splitlines()]

    # --- reshaping --------------------------------------------------------------------------------------

    def promote(self, replica: RedisServer) -> None:
        """Makes the replica the primary, in order (`CLUSTER FAILOVER`). Returns when all nodes know.

        Nodes vote for the same pair only every two seconds. An attempt before that takes five seconds.
        """
        for _ in range(_HANDOVERS):
            self.tell(replica, "CLUSTER", "FAILOVER")
            with suppress(TimeoutError):
                self._wait("the replica owns slots", lambda: replica in self.primaries(), _ATTEMPT_S)
                break
        self.wait_until_settled()

    def migration(self, slot: int, to: RedisServer) -> Migration:
        """The move of a slot, step by step."""
        return Migration(self, slot, self.owner(slot), to)

    def migrate_slot(self, slot: int, to: RedisServer) -> None:
        """Moves a slot in one go."""
        move = self.migration(slot, to)
        move.begin()
        move.move_keys()
        move.finish()

    def id_of(self, server: RedisServer) -> str:
        """The node's id in the cluster."""
        return next(each for each, node in self._ids.items() if node is server)

    def tell(self, node: RedisServer, *command: Word) -> Reply:
        """Sends one command to one node. Returns the reply as bytes; raises errors."""
        return self._telling.tell(node, *command)

    # --- inside -----------------------------------------------------------------------------------------

    def _node(self, words: list[str]) -> Node:
        """`id address flags primary ping pong epoch link slot-or-range...`; [...] is a slot that is moving."""
        edges = [each.partition("-") for each in words[8:] if not each.startswith("[")]
        slots = tuple(range(int(first), int(last or first) + 1) for first, _, last in edges)
        return Node(self._ids[words[0]], frozenset(words[2].split(",")), slots, words[3], words[0], words[6])

    def _knows_all(self, node: RedisServer) -> bool:
        with suppress(KeyError):  # in a handshake a node has a temporary id
            view = self.view(node)
            owned = sum(map(len, (part for each in view for part in each.slots)))
            return len(view) == len(self.nodes) and owned == REDIS_CLUSTER_HASH_SLOTS
        return False

    def _is_settled(self) -> bool:
        running = [node for node in self.nodes if self._telling.runs(node)]
        views = [self.view(node) for node in running]
        # A node that takes a slot while it has not heard of the highest epoch takes no higher one, and the others never believe it
        roles = {
            frozenset((each.id, each.primary, each.slots, each.epoch) for each in view) for view in views
        }
        if len(roles) != 1:
            return False
        flags = [each.flags for view in views for each in view if each.server in running]
        return not any(each & {"fail", "fail?", "handshake"} for each in flags) and all(
            map(self._is_well, running)
        )

    def _is_well(self, node: RedisServer) -> bool:
        """Whether the node answers for its slots; of a replica, whether its copy is complete."""
        if "cluster_state:ok" not in self._telling.text(node, "CLUSTER", "INFO"):
            return False
        role = self._telling.words(node, "ROLE")
        return role[0] == "master" or role[3] == "connected"

    def _accounts(self) -> str:
        """What each node says of all of them: for the reader of an error."""
        said = [
            f"{node.port}: {' '.join(self._telling.words(node, 'ROLE')[:4:3])}\n"
            + self._telling.text(node, "CLUSTER", "NODES")
            for node in self.nodes
            if self._telling.runs(node)
        ]
        return "\n".join(said)

    def _on_their_way(self, node: RedisServer) -> list[int]:
        said = self._telling.text(node, "CLUSTER", "NODES")
        words = next(line for line in said.splitlines() if "myself" in line).split()[8:]
        return [int(each[1:].split("-")[0]) for each in words if each.startswith("[")]

    def _wait(self, what: str, is_so: Callable[[], bool], within: float = SETTLE_TIMEOUT_S) -> None:
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            with suppress(RedisError, OSError, StopIteration):
                if is_so():
                    return
            time.sleep(_POLL_S)
        raise TimeoutError(f"the cluster did not reach this state within {within:g} s: {what}")


class Migration:
    """The move of a slot from one primary to another. Each step may be called alone; in between both nodes have the slot."""

    def __init__(self, cluster: RedisCluster, slot: int, source: RedisServer, to: RedisServer) -> None:
        self.slot = slot
        self.source = source
        self.to = to
        self._cluster = cluster

    def begin(self) -> None:
        """From now on the source answers ASK for keys that it does not have."""
        ids = {node: self._cluster.id_of(node) for node in (self.source, self.to)}
        self._cluster.tell(self.to, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", ids[self.source])
        self._cluster.tell(self.source, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", ids[self.to])

    def move_keys(self, keys: Sequence[bytes] | None = None) -> None:
        """Moves these keys, or all keys of the slot."""
        if keys is None:
            found = self._cluster.tell(self.source, "CLUSTER", "GETKEYSINSLOT", self.slot, 1_000_000)
            keys = cast("list[bytes]", found)
        if keys:
            where = ("127.0.0.1", self.to.port, "", 0, 5000)
            self._cluster.tell(self.source, "MIGRATE", *where, "REPLACE", "KEYS", *keys)

    def finish(self) -> None:
        """Tells the new owner first, as Redis' documentation says. From now on the source answers MOVED."""
        owner = self._cluster.id_of(self.to)
        for node in (self.to, self.source):
            self._cluster.tell(node, "CLUSTER", "SETSLOT", self.slot, "NODE", owner)

    def undo(self) -> None:
        """Leaves the slot where it was, and moves keys back that have moved already."""
        back = Migration(self._cluster, self.slot, self.to, self.source)
        self._cluster.tell(self.source, "CLUSTER", "SETSLOT", self.slot, "STABLE")
        back.move_keys()
        self._cluster.tell(self.to, "CLUSTER", "SETSLOT", self.slot, "STABLE")


def _slot(of: int | bytes | str) -> int:
    return of if isinstance(of, int) else key_slot(of.encode() if isinstance(of, str) else of)


def _start_with_bus(node: RedisServer) -> None:
    """Starts a node on its port, if a caller has set one, or else on one that is free together with its bus port.

    The system's free port might not be.
    """
    if node.port:
        node.start()
        return
    for _ in range(_ATTEMPTS):
        node.port = _SYSTEM.choice(_PORTS)
        if is_free(node.port) and is_free(node.port + _BUS):
            with suppress(RuntimeError):  # another process took the port
                node.start()
                return
    raise RuntimeError("no pair of free ports for a cluster node")
