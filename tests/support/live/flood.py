"""An application in a process of its own that misses ever new keys of one namespace, at a set rate, whenever it is told to."""

from __future__ import annotations

import time

from cacheupdater_client import Redis, close

BEAT_S = 0.05
IDLE_S = 0.2  # between two looks whether all has ended


def flood(redis_url, emit, rate, going, ended):
    """Misses `rate` keys `noisy:N` a second while `going` is set, until `ended` is."""
    sent = 0
    with Redis.from_url(redis_url, emit=emit) as client:
        while not ended.is_set():
            if not going.wait(IDLE_S):
                continue
            first, began = sent, time.monotonic()
            while going.is_set() and not ended.wait(BEAT_S):
                due = first + int((time.monotonic() - began) * rate)
                client.mget([f"noisy:{number}" for number in range(sent, due)] or ["noisy:0"])
                sent = due
    close()
