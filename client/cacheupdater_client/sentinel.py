"""The drop-in `redis.sentinel.Sentinel`: the clients that it makes leave hints.

They are `cacheupdater_client.Redis` unless the caller names another class. They use redis-py's own connection pool, which
asks the sentinels again after a failover. Commands to the sentinels themselves leave no hints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from redis import sentinel

from cacheupdater_client import calls
from cacheupdater_client.observe import Emitting
from cacheupdater_client.redis import Redis
from cacheupdater_client.signatures import like

if TYPE_CHECKING:
    from collections.abc import Sequence


class EmittingSentinel:
    """A mixin before redis-py's Sentinel, sync or asyncio. `emit` and `only` as for `Redis`."""

    _clients: ClassVar[type]

    def __init__(
        self, *args: Any, emit: str | None = "auto", only: Sequence[str | bytes] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._emit, self._only = emit, only

    def master_for(
        self, service_name: str, redis_class: type | None = None, *args: Any, **options: Any
    ) -> Any:
        """As redis-py's; takes `emit` and `only` too, for this client alone."""
        plain: Any = super()
        return self._made(plain.master_for, service_name, redis_class, *args, **options)

    def slave_for(
        self, service_name: str, redis_class: type | None = None, *args: Any, **options: Any
    ) -> Any:
        """As `master_for`."""
        plain: Any = super()
        return self._made(plain.slave_for, service_name, redis_class, *args, **options)

    def replica_for(self, *args: Any, **options: Any) -> Any:
        """`slave_for` by its newer name."""
        return self.slave_for(*args, **options)

    def _made(
        self, make: Any, service_name: str, redis_class: type | None, *args: Any, **options: Any
    ) -> Any:
        emit, only = options.pop("emit", self._emit), options.pop("only", self._only)
        cls = redis_class or self._clients
        with calls.told_later(cls):
            client = make(service_name, cls, *args, **options)
        if isinstance(client, Emitting):
            client.emit_to(calls.hints_for(client.get_encoder(), emit, only))
        return client


class Sentinel(EmittingSentinel, sentinel.Sentinel):
    """`redis.sentinel.Sentinel` whose clients leave hints."""

    _clients = Redis

    @like(sentinel.Sentinel.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
