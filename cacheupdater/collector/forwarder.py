"""Sends the gathered hints on to the queue, by the client's own outbox and links.

A collector has one `Forwarder`, which lives as long as the process. It takes a turn every 100 ms, as a client's sender does;
a change, or a miss whose reader waits, leaves at once if none was sent just before, otherwise within 10 ms. While frames are
owed their acknowledgement, a turn follows every 10 ms.

A link may take milliseconds of a turn (Kafka's client, a look-up of a name), so each of its turns runs in a thread
beside the loop. Only one turn runs at a time, and the loop touches the outbox only between turns. So nothing needs a lock. If the
queue is an updater, the link says for how many clients we stand.
The outbox keeps what is not acknowledged, and sends it again after a fault. With a spill, hints that come while the queue is
away go to disk instead, and are replayed once it is back.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from cacheupdater.collector import links
from cacheupdater.collector.turn import Moment
from cacheupdater.core.hints import KIND_OF
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.target import DRAIN_S, HURRY_S

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from cacheupdater.collector.gathered import Gathered
    from cacheupdater.collector.spill import Spill
    from cacheupdater.collector.turn import Aside
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer
    from cacheupdater_client.outbox import Frame
    from cacheupdater_client.protocol.wire import Hello
    from cacheupdater_client.transports import Link


class Listening(Protocol):
    """Who hears of each turn."""

    def hello(self, hello: Hello) -> None:
        """The queue has said this for the first time, or has said something else than before."""

    def acknowledge(self) -> None:
        """More frames may be acknowledged than before."""


class Forwarder:
    """The way from the gathered hints to the queue."""

    def __init__(
        self,
        gathered: Gathered,
        link: Link,
        *,
        only: Sequence[bytes],
        name: str,
        observer: Observer,
        notices: Notices,
    ) -> None:
        """`name` is the queue's URL, for people."""
        self.outbox = Outbox(only, curious=True, settled=lambda *frame: self._left.append(frame))
        self._gathered = gathered
        self._link = link
        self._name = name
        self._observer = observer
        self._notices = notices
        self._left: list[tuple[Frame, bool]] = []  # frames that have left the outbox in this turn
        self._hello: Hello | None = None
        self._spill: Spill | None = None
        self._dropped: dict[str, int] = {}  # as reported so far, by reason
        self._hurried_at = self._drained_at = float("-inf")
        self._soon = False  # the link has more to do
        self._last_call = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether the queue takes hints."""
        return self._link.connected

    @property
    def waiting(self) -> int:
        """Hints that are neither forwarded nor dropped, repeated ones included."""
        return self.outbox.waiting + self._gathered.hints

    def keep_on_disk(self, spill: Spill) -> None:
        """Hints go to this spill while the queue is away. Called before `run`."""
        self._spill = spill

    def empty(self) -> None:
        """From now on nothing waits for company, and `run` returns once all is forwarded."""
        self.outbox.last_call = True
        self._last_call.set()

    async def run(self, listening: Listening, aside: Aside, wall_ms: Callable[[], int]) -> None:
        """Takes turns until `empty` was called and nothing waits."""
        while not (self._last_call.is_set() and not self.waiting):
            await self._rest()
            await self._turn(listening, aside, wall_ms())

    async def _rest(self) -> None:
        """Waits for the next turn: at its time, or when something urgent comes."""
        clock = asyncio.get_running_loop().time
        hurried = self._hurried_at + HURRY_S
        owes = self._gathered.owes and self._link.connected
        if self._soon or owes or self._last_call.is_set():
            await asyncio.sleep(max(0.0, hurried - clock()))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._drained_at + DRAIN_S):
                await self._gathered.hurry.wait()
                await asyncio.sleep(max(0.0, hurried - clock()))

    async def _turn(self, listening: Listening, aside: Aside, now_ms: int) -> None:
        now = self._hurried_at = asyncio.get_running_loop().time()
        drains = now >= self._drained_at + DRAIN_S or self._last_call.is_set()
        if drains:
            self._drained_at = now
        await self._hand_over(aside, Moment(now, now_ms, drains))
        self.outbox.clients = max(1, self._gathered.clients)
        self._soon = await aside(lambda: self._link.turn(self.outbox, now, now_ms))
        self._settle()
        hello = self.outbox.hello
        if hello is not None and hello is not self._hello:
            self._hello = hello
            self._gathered.recall()
            if self._spill is not None:
                self._spill.replay.recall()
            listening.hello(hello)
        if self._spill is not None:
            self._spill.replay.look(self.outbox)
        if self._gathered.look(self.outbox):
            listening.acknowledge()
        self._tell()

    async def _hand_over(self, aside: Aside, moment: Moment) -> None:
        """Moves hints into the outbox; while the queue is away, and if there is a spill, changes and misses go to disk."""
        kept = self._spill is not None and await self._spill.keep(
            self.outbox, aside, moment, connected=self._link.connected
        )
        if not kept:
            self._gathered.hand_over(self.outbox, all_kinds=moment.drains)
        elif moment.drains:
            self._gathered.hand_over_touches(self.outbox)
        if self._spill is not None:
            await self._spill.go_on(self.outbox, aside, moment)

    def _settle(self) -> None:
        """Counts the frames that have left the outbox."""
        left, self._left = self._left, []
        for frame, taken in left:
            self._gathered.settle(frame.kind, frame.keys)
            if self._spill is not None:
                self._spill.replay.settle(frame.kind, frame.keys)
            if taken:
                kind = KIND_OF[frame.kind].name.lower()
                self._observer.count("forwarded", frame.keys, label=kind)
                self._observer.count("merged", frame.hints - frame.keys, label=kind)

    def _tell(self) -> None:
        """Reports what waits, what was dropped, and whether the queue takes hints."""
        self._observer.level("waiting", self.waiting)
        dropped: Counter[str] = self.outbox.dropped
        for reason, hints in dropped.items():
            if hints > self._dropped.get(reason, 0):
                self._observer.count("dropped", hints - self._dropped.get(reason, 0), reason=reason)
                self._dropped[reason] = hints
        links.tell(self._link, self._name, self._notices)

    def close(self) -> int:
        """Leaves the connection. Returns how many hints are given up."""
        left = self.waiting
        self.outbox.discard("closed")
        self._link.close()
        return left
