"""The sender: one daemon thread per process, which drains all buffers and sends the hints to their targets.

The thread starts with the first hint and takes a turn every 100 ms. A change, or a miss whose reader waits, leaves at once if
none was sent just before, otherwise within 10 ms. The thread ends with `close`, at exit, or unnoticed. However it ends, all leases are left empty, so
that the next hint starts it again. A forked child begins with nothing: the parent's hints stay the parent's.

The application's threads call `attend` and `hurry` only. Both return at once and take no lock that could be held by the very
code that they interrupt. Hence the bare thread of `_thread`, whose start waits for nothing.

`close` sends the thread a request and waits. It touches no hint itself, for it may be interrupted at any line (Ctrl-C, a
handler that raises); the thread then finishes alone. Only at the interpreter's shutdown, when no thread can be started any
more, does the caller of `close` send the rest.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple, TypedDict
from weakref import WeakValueDictionary

from cacheupdater_client import native
from cacheupdater_client.guard import faults
from cacheupdater_client.protocol.mailbox import mailboxes_begin_after_fork
from cacheupdater_client.target import DRAIN_S, HURRY_S, LOOK_S, Target, TargetStats

if TYPE_CHECKING:
    from collections.abc import Iterable

FLUSH_S = 0.002  # between looks while a caller waits in `close`
EXIT_S = 1.0  # the most that a process waits at its exit, however often it is closed there
LEAVE_S = 0.1  # of a second's close for leaving connections; shorter ones keep a tenth of their time
HANG_S = 1.0  # beyond the end of a close: a slow machine does not explain more
START_S = 1.0  # between attempts to start a thread where the system allows no more

log = logging.getLogger("cacheupdater_client")


class Stats(TypedDict):
    """Hints of this process, since it began or was forked."""

    emitted: int
    delivered: int
    waiting: int
    dropped: dict[str, int]
    faults: int  # commands that could not be observed; their hints are in no count
    targets: dict[str, TargetStats]


class Closer(NamedTuple):
    """A caller that waits in `close`."""

    flush_by: float
    by: float
    bell: native.Bell


class Sender:
    """The thread and its targets."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[str, tuple[bytes, ...]], Target] = WeakValueDictionary()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._active: dict[Target, None] = {}  # a set that keeps its order
        self._past: Counter[str] = Counter()  # hints that retired targets have dropped, by reason
        self._past_delivered = 0
        self._bell = native.Bell()
        self._closers: deque[Closer] = deque()  # whose hints no thread has begun to flush
        self._hurried = False
        self._hurried_at = float("-inf")  # the last turn that was hurried
        self._may_start = deque([True])  # the caller that has taken it out starts the thread; no other waits
        self._start_at = float("-inf")  # the next attempt
        self._naming = threading.RLock()  # re-entrant: signal handlers and finalizers may make clients too
        self._running = False
        self._thread = 0
        self._flushing = False  # by the thread, or by a caller where no thread can be had
        self._finalized = False
        self._exit_left = EXIT_S

    # --- called by the application's threads ----------------------------------------------------------

    def target(self, url: str, only: tuple[bytes, ...], *, awaited: bool = False) -> Target:
        """The target of this URL, shared by all clients that name it. ValueError if it cannot be one."""
        found = self._known.get((url, only))
        if found is None:
            made = Target(
                url, only, self, awaited=awaited
            )  # outside the lock: it may have to import a transport
            with self._naming:  # of targets made at the same time, all callers get the first
                found = self._known.setdefault((url, only), made)
        found.awaited = found.awaited and awaited
        return found

    @property
    def closing(self) -> bool:
        """As Keeper."""
        return self._flushing or bool(self._closers)

    def attend(self, target: Target) -> bool:
        """Starts the thread unless it runs. Never waits for another caller that is starting it."""
        if os.getpid() != self._pid:  # forked by code that runs none of Python's hooks
            self.begin_after_fork()
        if target not in self._active:
            self._active[target] = None
            self._bell.ring()  # the thread may be resting for long
        self._start()
        return self._running

    def _start(self) -> None:
        if self._running or native.no_threads() or time.monotonic() < self._start_at:
            return
        try:
            self._may_start.pop()
        except IndexError:  # another caller is starting it
            return
        try:
            if not self._running:
                self._start_thread()
        finally:
            self._may_start.append(True)

    def _start_thread(self) -> None:
        # multiprocessing's children end without atexit. While another thread is importing the module, `Finalize` may be
        # missing; but then this process is not one of its children.
        finalize = getattr(sys.modules.get("multiprocessing.util"), "Finalize", None)
        if finalize is not None and not self._finalized:
            self._finalized = True
            finalize(None, self.close_at_exit, exitpriority=0)
        self._running = True
        try:
            native.start_thread(self._run)
        except RuntimeError:
            # no more threads, or the interpreter is shutting down: `close` sends what is left
            self._running = False
            self._start_at = time.monotonic() + START_S

    def hurry(self) -> None:
        """At most one ring waits, however many urgent hints there are."""
        if not self._hurried:
            self._hurried = True
            self._bell.ring()

    def chill(self) -> None:
        """Buffers hand out no places in advance until their next hint."""
        for target in list(self._known.values()):
            target.chill()

    # --- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        served: list[Closer] = []
        try:
            threading.current_thread().name = "cacheupdater-sender"
            self._thread = native.this_thread()
            while True:
                began = time.monotonic()
                pause = self._turn(began)
                if self._closers and self._ended(served):
                    break
                self._rest(began, pause)
        except BaseException:  # nobody will serve those that wait
            while self._closers:
                served.append(self._closers.popleft())
            raise
        finally:
            # in this order: once `_running` is False another thread may start, and hints must not rely on this one
            self._running = False
            self._chill()
            _let_go(served)
        if self._closers or any(target.waits for target in list(self._active)):
            self._start()  # whoever came during the end had relied on this thread

    def _turn(self, now: float) -> float:
        if self._hurried:
            self._hurried, self._hurried_at = False, now
        pause = LOOK_S
        for target in list(self._active):
            try:
                pause = min(pause, target.turn(now))
                if target.unused:
                    self._retire(target)
            except Exception:  # one target's fault must not stop the others
                log.debug("cannot send hints to %s; trying again", target.name, exc_info=True)
                pause = min(pause, DRAIN_S)
        return pause

    def _retire(self, target: Target) -> None:
        """The order matters, for a client may be made at any moment: its hint attends, or the second look here sees it."""
        del self._active[target]
        if not target.unused:
            self._active[target] = None
            return
        last = target.retire()
        self._past_delivered += last["delivered"]
        self._past.update(last["dropped"])

    def _rest(self, began: float, pause: float) -> None:
        """Waits for the next turn. An urgent hint that follows another waits until HURRY_S have passed since the earlier one."""
        if self._bell.wait(began + pause - time.monotonic()) and not self._closers:
            native.sleep(self._hurried_at + HURRY_S - time.monotonic())

    # --- the end --------------------------------------------------------------------------------------

    def close(self, timeout: float) -> None:
        """Sends what waits, for at most `timeout` seconds, counts the rest as dropped, and ends the thread."""
        began = time.monotonic()
        closer = Closer(began + timeout - min(LEAVE_S, timeout / 10), began + timeout, native.Bell())
        if self._running and self._thread == native.this_thread():  # called by a handler of a log line
            return
        if any(target.waits for target in list(self._active)):
            self._start()
        if not self._running:
            self._close_here(closer.flush_by)
            return
        self._closers.append(closer)
        self._bell.ring()
        self._start()  # the thread may have ended just before
        if self._running:
            closer.bell.wait(closer.by - time.monotonic())

    def close_at_exit(self) -> None:
        """Called by multiprocessing and by `atexit`; both calls together take at most EXIT_S."""
        began = time.monotonic()
        self.close(self._exit_left)
        self._exit_left = max(0.0, self._exit_left - (time.monotonic() - began))

    def _ended(self, served: list[Closer]) -> bool:
        """Whether the thread shall end: it has then sent what it could, and given up the rest. Takes the callers it served.

        If it hung (in a name look-up, say) until no caller waited any more, it gives up nothing and continues.
        """
        self._flushing, flushed_by = True, float("-inf")
        try:
            while self._closers:  # who comes meanwhile has hints of its own
                served.append(self._closers.popleft())
                if time.monotonic() < served[-1].by:
                    self._flush(served[-1].flush_by)
                    flushed_by = max(flushed_by, served[-1].by)
            if time.monotonic() < flushed_by + HANG_S:
                self._leave()
                return True
        finally:
            self._flushing = False
        _let_go(served)
        served.clear()
        return False

    def _close_here(self, by: float) -> None:
        if self._flushing:  # a `close` within a `close`, by a signal handler
            return
        self._flushing = True
        try:
            self._flush(by)
            self._leave()
        finally:
            self._chill()  # also when we are interrupted: no thread takes turns now
            self._flushing = False

    def _flush(self, by: float) -> None:
        """Takes turns while there are hints to send and a peer that takes them."""
        while self._turn(time.monotonic()) <= HURRY_S or any(target.hopeful for target in list(self._active)):
            if time.monotonic() >= by:
                return
            native.sleep(FLUSH_S)

    def _leave(self) -> None:
        """Hints that come from here on will start the thread again."""
        self._chill()
        for target in list(self._active):
            target.close()

    def _chill(self) -> None:
        for target in list(self._active):
            target.chill()

    def begin_after_fork(self) -> None:
        """In a forked child: no thread, no lock in an unknown state, no hint of the parent."""
        targets = list(self._known.values())
        self._reset()
        faults.count = 0
        mailboxes_begin_after_fork()
        for target in targets:
            target.begin_after_fork()

    def stats(self) -> Stats:
        """The counts of all targets together, and of each."""
        targets = {target.name: target.stats() for target in list(self._active)}
        dropped = self._past.copy()
        for each in targets.values():
            dropped.update(each["dropped"])
        delivered = self._past_delivered + sum(each["delivered"] for each in targets.values())
        waiting = sum(each["waiting"] for each in targets.values())
        return {
            "emitted": delivered + waiting + dropped.total(),
            "delivered": delivered,
            "waiting": waiting,
            "dropped": dict(dropped),
            "faults": faults.count,
            "targets": targets,
        }


def _let_go(closers: Iterable[Closer]) -> None:
    """Only those that a thread has served: it may be slow to end, while the next thread flushes for callers that came later."""
    for closer in closers:
        closer.bell.ring()


sender = Sender()
atexit.register(sender.close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=sender.begin_after_fork)
