"""The sender: one daemon thread in a process, which takes hints out of all buffers and sends them to their targets.

It starts with the first hint, takes a turn every 100 ms (within 10 ms of a change) and ends with `close`, at exit, or
unnoticed: whatever ends it leaves all leases empty, so that the next hint starts it again. A forked child begins with
nothing: what the parent had buffered stays the parent's.

The application's threads come in through `attend` and `hurry` only. Both return at once and take no lock that could be
held by the very code that they interrupt; hence the bare thread of `_thread`, whose start waits for nobody.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import sys
import threading
import time
from collections import Counter
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypedDict
from weakref import WeakValueDictionary

from cacheupdater_client.buffer import Buffer, KeyEncoder
from cacheupdater_client.guard import faults
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.transports import Link, link_to
from cacheupdater_client.wire import mailboxes_reborn

if TYPE_CHECKING:
    from collections.abc import Sequence

DRAIN_S = 0.1  # oftener costs the application: at 10 ms its p99.9 doubles
HURRY_S = 0.01  # the least time between turns, whatever hurries
FLUSH_S = 0.002  # between looks while somebody waits in `close`
EXIT_S = 1.0  # the most that a process waits at its exit

log = logging.getLogger("cacheupdater_client")


class TargetStats(TypedDict):
    """Hints of one target, duplicates counted: emitted = delivered + waiting + all that was dropped."""

    emitted: int
    delivered: int
    waiting: int
    dropped: dict[str, int]
    connected: bool
    trouble: str


class Stats(TypedDict):
    """Hints of this process, since it began or was forked."""

    emitted: int
    delivered: int
    waiting: int
    dropped: dict[str, int]
    faults: int  # commands that could not be observed, whose hints nobody counts
    targets: dict[str, TargetStats]


class Target:
    """One place that hints go to: a buffer per encoding, the outbox, the link."""

    def __init__(self, url: str, only: Sequence[bytes], sender: Sender) -> None:
        self.name = f"{url} only {b', '.join(only).decode('utf-8', 'replace')}" if only else url
        self._only = only
        self._sender = sender
        self._make_link = link_to(url)
        self._buffers: dict[tuple[str, str], Buffer] = {}
        self._outbox = Outbox(only)
        self._link: Link = self._make_link()

    def buffer(self, encoder: KeyEncoder) -> Buffer:
        """The buffer of all clients that encode keys like this."""
        name = (encoder.encoding, encoder.encoding_errors)
        return self._buffers.setdefault(name, Buffer(encoder, self))

    def attend(self) -> bool:
        """As Attendant."""
        return self._sender.attend(self)

    def hurry(self) -> None:
        """As Attendant."""
        self._sender.hurry()

    def turn(self, now: float) -> bool:
        """Buffers to outbox, outbox to link. True if the next turn should come soon."""
        for buffer in list(self._buffers.values()):
            for kind, counts in buffer.drain():
                self._outbox.add(kind, counts)
        self._outbox.last_call = self._sender.stopping
        return self._link.turn(self._outbox, now, time.time_ns() // 1_000_000)

    @property
    def hopeful(self) -> bool:
        """Something waits, and there is a peer to take it."""
        return bool(self._outbox) and self._link.connected

    def chill(self) -> None:
        """Nobody takes turns from now on."""
        for buffer in list(self._buffers.values()):
            buffer.chill()

    def close(self) -> None:
        """What has not been delivered by now is given up and counted."""
        self._outbox.discard("closed")
        self._link.close()

    def reborn(self) -> None:
        """In a forked child. Closing our copy of the socket leaves the parent's connection alone."""
        for buffer in self._buffers.values():
            buffer.reborn()
        self._link.close()
        self._outbox, self._link = Outbox(self._only), self._make_link()

    def stats(self) -> TargetStats:
        """The ledger: nothing is in two of its columns. What a turn is just carrying over is in none, for some milliseconds."""
        buffers, outbox = list(self._buffers.values()), self._outbox
        # copies, because other threads add reasons while `sum` walks through them
        dropped = sum((Counter(buffer.dropped.copy()) for buffer in buffers), outbox.dropped.copy())
        waiting = outbox.waiting + sum(map(len, buffers))
        return {
            "emitted": outbox.delivered + waiting + dropped.total(),
            "delivered": outbox.delivered,
            "waiting": waiting,
            "dropped": dict(dropped),
            "connected": self._link.connected,
            "trouble": self._link.trouble,
        }


class Sender:
    """The thread and its targets."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[str, tuple[bytes, ...]], Target] = WeakValueDictionary()
        self._reset()

    def _reset(self) -> None:
        self._active: dict[Target, None] = {}  # a set that keeps its order
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._hurried = False
        self._starting = _thread.allocate_lock()
        self._naming = threading.RLock()  # a signal handler or a finalizer may make a client amid another's
        self._closing = threading.RLock()
        self._running = False
        self.stopping = False
        self._finalized = False
        self._stopped = threading.Event()

    # --- called by the application's threads ----------------------------------------------------------

    def target(self, url: str, only: tuple[bytes, ...]) -> Target:
        """The target of this URL, shared by all clients that name it. ValueError if it cannot be one."""
        found = self._known.get((url, only))
        if found is None:
            made = Target(url, only, self)  # outside the lock: it may have to import a transport
            with self._naming:  # of those that were made at the same time all get the first
                found = self._known.setdefault((url, only), made)
        return found

    def attend(self, target: Target) -> bool:
        """Starts the thread unless it runs; never waits for somebody else who is starting it."""
        self._active[target] = None
        if not (self._running or self.stopping) and self._starting.acquire(blocking=False):
            try:
                if not self._running:
                    self._start()
            finally:
                self._starting.release()
        return self._running and not self.stopping

    def _start(self) -> None:
        # multiprocessing's children end without atexit. While another thread is importing it, it lacks what we need; but
        # then this process is no child of it.
        finalize = getattr(sys.modules.get("multiprocessing.util"), "Finalize", None)
        if finalize is not None and not self._finalized:
            self._finalized = True
            finalize(None, self.close, (EXIT_S,), exitpriority=0)
        self._stopped.clear()
        self._running = True
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:
            # no more threads, or the interpreter is shutting down: `close` sends what is left
            self._running = False

    def hurry(self) -> None:
        """At most one token waits, however many changes there are."""
        if not self._hurried:
            self._hurried = True
            self._wake.put(None)

    # --- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            threading.current_thread().name = "cacheupdater-sender"
            while not self.stopping:
                began = time.monotonic()
                soon = self._turn(began)
                self._rest(began, HURRY_S if soon else DRAIN_S)
        finally:
            # in this order: from `_running` on another thread may start, and hints must not count on this one
            self._stopped.set()
            self._running = False
            for target in list(self._active):
                target.chill()

    def _turn(self, now: float) -> bool:
        self._hurried = False
        soon = False
        for target in list(self._active):
            try:
                soon |= target.turn(now)
            except Exception:  # one target's fault must not stop the others
                log.debug("cannot send hints to %s; trying again", target.name, exc_info=True)
        return soon

    def _rest(self, began: float, pause: float) -> None:
        """Until the next turn is due, or a change waits and HURRY_S have passed."""
        try:
            self._wake.get(timeout=max(0.0, began + pause - time.monotonic()))
        except Empty:
            return
        if not self.stopping:
            time.sleep(max(0.0, began + HURRY_S - time.monotonic()))

    # --- the end --------------------------------------------------------------------------------------

    def close(self, timeout: float) -> None:
        """Sends what waits, for at most `timeout` seconds, counts the rest as dropped, and ends the thread."""
        deadline = time.monotonic() + timeout
        if not self._closing.acquire(timeout=timeout):
            return
        try:
            self.stopping = True
            self._wake.put(None)
            if self._running and not self._stopped.wait(timeout):
                # It hangs in a name lookup, and the outbox is its own: what waits stays `waiting`. Being a daemon it
                # ends with the process; if the lookup ends first, it goes on.
                return
            self._flush(deadline)
            for target in list(self._active):
                target.chill()
                target.close()
        finally:
            self.stopping = False
            self._closing.release()

    def _flush(self, deadline: float) -> None:
        """Takes turns here, in the caller's thread, while there is something to send and somebody to take it."""
        while self._turn(time.monotonic()) or any(target.hopeful for target in list(self._active)):
            if time.monotonic() >= deadline:
                return
            time.sleep(FLUSH_S)

    def reborn(self) -> None:
        """In a forked child: no thread, no lock in an unknown state, no hint of the parent."""
        targets = list(self._known.values())
        self._reset()
        faults.count = 0
        mailboxes_reborn()
        for target in targets:
            target.reborn()

    def stats(self) -> Stats:
        """All targets together, and each."""
        targets = {target.name: target.stats() for target in list(self._active)}
        dropped: Counter[str] = Counter()
        for each in targets.values():
            dropped.update(each["dropped"])
        return {
            "emitted": sum(each["emitted"] for each in targets.values()),
            "delivered": sum(each["delivered"] for each in targets.values()),
            "waiting": sum(each["waiting"] for each in targets.values()),
            "dropped": dict(dropped),
            "faults": faults.count,
            "targets": targets,
        }


sender = Sender()
atexit.register(sender.close, EXIT_S)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=sender.reborn)
