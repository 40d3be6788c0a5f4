"""Makes namespaces the updater's own before the first test that shares the updater.

A value that a test writes by hand would otherwise look like the first one of an application with another format.
"""

from __future__ import annotations

import redis
from hints.peer import HintPeer

from cacheupdater_client.protocol.wire import MISS
from live.updater_process import eventually


def take_over(updater, redis_url, *keys):
    """Fills these keys, of namespaces without a verdict."""
    with redis.Redis.from_url(redis_url) as plain, HintPeer(updater.socket) as peer:
        peer.hint(MISS, *keys)
        eventually(lambda: plain.exists(*keys) == len(keys))
