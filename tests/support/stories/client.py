"""Shared by the tests of the clients: an updater's ear, and one interface for sync and asyncio clients."""

from __future__ import annotations

import inspect
from collections import Counter

import redis

import cacheupdater_client
from cacheupdater.core.hints import KIND_OF
from cacheupdater_client.protocol.mailbox import mailbox
from cacheupdater_client.protocol.wire import Hello, decode_pack


class Ear:
    """The hints that an updater in this process gets."""

    def __init__(self, name):
        self.url = f"memory://{name}"
        self._box = mailbox(name)
        self._box.open(Hello(3, []))

    def heard(self, *, exact=False):
        """All hints since the last call: how often each kind and key. A SET is a change; `exact` tells the two apart."""
        cacheupdater_client.close(60)
        counts = Counter()
        for _, payload in self._box.take():
            pack = decode_pack(payload)
            for key, count in zip(pack.keys, pack.counts or [1] * len(pack.keys), strict=True):
                counts[pack.kind if exact else KIND_OF[pack.kind], key] += count
        return counts


class Both:
    """A client of either kind with the asyncio client's interface, so that one story tests both."""

    def __init__(self, client):
        self.client = client

    def __getattr__(self, name):
        found = getattr(self.client, name)
        if name in {"pipeline", "client", "get_encoder"}:
            return lambda *args, **options: Both(found(*args, **options))

        async def call(*args, **options):
            reply = found(*args, **options)
            return await reply if inspect.iscoroutine(reply) else reply

        return call


def outcome(call):
    """The result or error of a call, in a form that can be compared."""
    try:
        reply = call()
    except redis.RedisError as e:
        return type(e), str(e)
    return (
        [outcome(lambda each=each: each) for each in reply]
        if isinstance(reply, list)
        else (type(reply), str(reply))
    )
