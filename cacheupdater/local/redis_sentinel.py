"""Redis under Sentinels of one's own: a primary, replicas, and three sentinels that elect another primary.

Tests use it for changes of the primary: by command (`failover`) or by death (`primary().kill()`). A primary that is silent
for SILENCE_MS counts as dead.

Sentinels are slow in one respect: they look at a node's role every ten seconds. A primary that was replaced by command, or
that starts again, accepts writes for some ten seconds more, until a sentinel makes it a replica of the new one. `demote` does
so at once for one node, `heal` for all.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from redis.exceptions import RedisError

from cacheupdater.local.redis_server import RedisServer
from cacheupdater.local.redis_telling import Telling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cacheupdater.local.redis_telling import Reply, Word

SILENCE_MS = 2500  # a primary that is silent for so long counts as dead; a healthy one may be silent for a second on a busy machine
FAILOVER_TIMEOUT_MS = 2000  # a vote without a result is repeated after twice this
SETTLE_TIMEOUT_S = 30.0  # usually 2 to 4 s, on a busy machine more
QUORUM = 2
_POLL_S = 0.02


class RedisSentinels:
    """A primary, its replicas and sentinels, started by `start` or `with`."""

    def __init__(
        self, executable: Path | None = None, *, replicas: int = 1, sentinels: int = 3, name: str = "main"
    ) -> None:
        """`name` is the primary's name among the sentinels."""
        options = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
        self.nodes = tuple(RedisServer(executable, options=options) for _ in range(1 + replicas))
        self.sentinels = tuple(_Sentinel(executable) for _ in range(sentinels))
        self.name = name
        self._telling = Telling()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.name}/0"

    # --- life -------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when every sentinel knows every node and every other sentinel."""
        first, *rest = self.nodes
        first.start()
        for node in rest:
            node.start()
            self.tell(node, "REPLICAOF", "127.0.0.1", first.port)
        self._wait("replicas have their copy", lambda: all(map(self._is_well, self.nodes)))
        for sentinel in self.sentinels:
            sentinel.start()
            self.tell(sentinel, "SENTINEL", "MONITOR", self.name, "127.0.0.1", first.port, QUORUM)
            for option, value in (
                ("down-after-milliseconds", SILENCE_MS),
                ("failover-timeout", FAILOVER_TIMEOUT_MS),
                ("parallel-syncs", len(rest)),
            ):
                self.tell(sentinel, "SENTINEL", "SET", self.name, option, value)
        self._wait("the sentinels know all", lambda: all(map(self._knows_all, self.sentinels)))
        return self

    def close(self) -> None:
        """Ends all processes and removes their files."""
        self._telling.close()
        for each in (*self.sentinels, *self.nodes):
            each.kill()
            each.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def heal(self) -> None:
        """Repairs everything after any test: all run, all sentinels agree, all others copy the primary, no key or script."""
        for each in (*self.nodes, *self.sentinels):
            each.resume()
            if not self._telling.runs(each) or (isinstance(each, _Sentinel) and each.froze):
                each.kill()
                each.start()
        self._wait("all agree", self._is_settled)
        for node in self.replicas():
            self.demote(node)
        self._wait("replicas have their copy", lambda: all(map(self._is_well, self.nodes)))
        self._wait("the sentinels know all", lambda: all(map(self._knows_all, self.sentinels)))
        self.flush()

    def flush(self) -> None:
        """Removes all keys and scripts."""
        self.tell(self.primary(), "FLUSHALL")
        for node in self.nodes:
            if self._telling.runs(node):
                self.tell(node, "SCRIPT", "FLUSH")

    # --- who is who -------------------------------------------------------------------------------------

    def primary(self) -> RedisServer:
        """The node that most sentinels name as primary. It may be dead already."""
        ports = [self._named_by(each) for each in self.sentinels if self._telling.runs(each)]
        most = max(ports, key=ports.count)
        return next(node for node in self.nodes if node.port == most)

    def replicas(self) -> list[RedisServer]:
        """The other nodes that run."""
        primary = self.primary()
        return [node for node in self.nodes if node is not primary and self._telling.runs(node)]

    def failover(self) -> RedisServer:
        """Replaces the primary by command. Returns the new one when all sentinels name it and it accepts writes.

        The old primary accepts writes too, for a while.
        """
        before = self.primary()
        self._wait("a sentinel begins", self._begin_failover)
        self._wait("another primary", lambda: self.primary() is not before and self._is_settled())
        return self.primary()

    def demote(self, node: RedisServer) -> None:
        """Makes a node a replica of the primary."""
        self.tell(node, "REPLICAOF", "127.0.0.1", self.primary().port)

    def tell(self, server: RedisServer, *command: Word) -> Reply:
        """Sends one command to one node or sentinel. Returns the reply as bytes; raises errors."""
        return self._telling.tell(server, *command)

    # --- inside -----------------------------------------------------------------------------------------

    def _named_by(self, sentinel: RedisServer) -> int:
        return int(self._telling.words(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)[1])

    def _begin_failover(self) -> bool:
        """Orders a failover. A sentinel that has just seen one may refuse for a moment (NOGOODSLAVE, INPROG)."""
        self.tell(self.sentinels[0], "SENTINEL", "FAILOVER", self.name)
        return True

    def _is_settled(self) -> bool:
        """Whether all sentinels name the same primary, and it accepts writes."""
        named = {self._named_by(each) for each in self.sentinels if self._telling.runs(each)}
        return len(named) == 1 and self._telling.words(self.primary(), "ROLE")[0] == "master"

    def _knows_all(self, sentinel: RedisServer) -> bool:
        """Whether the sentinel sees every node and every other sentinel as healthy, so that it could start a failover now."""
        [facts] = self._telling.facts(sentinel, "SENTINEL", "MASTERS")
        if facts["flags"] != "master" or int(facts["num-other-sentinels"]) < len(self.sentinels) - 1:
            return False
        followers = self._telling.facts(sentinel, "SENTINEL", "REPLICAS", self.name)
        well = [each for each in followers if each["flags"] == "slave"]
        return len(well) >= len(self.nodes) - 1

    def _is_well(self, node: RedisServer) -> bool:
        role = self._telling.words(node, "ROLE")
        return role[0] == "master" or role[3] == "connected"

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(RedisError, OSError):
                if is_so():
                    return
            time.sleep(_POLL_S)
        raise TimeoutError(f"the sentinels did not reach this state within {SETTLE_TIMEOUT_S:g} s: {what}")


class _Sentinel(RedisServer):
    """The same program in another role. It keeps its state in a file of its own."""

    froze = False  # since its start; after a freeze a sentinel mistrusts its clock and does nothing for half a minute

    def start(self) -> Self:
        self.froze = False
        return super().start()

    def pause(self) -> None:
        self.froze = True
        super().pause()

    def _command(self, port: int, folder: Path) -> list[str]:
        settings = folder / "sentinel.conf"
        if not settings.exists():
            settings.write_text(f"bind 127.0.0.1\nport {port}\ndir {folder}\n", "utf-8")
        return [str(self.executable), str(settings), "--sentinel"]
