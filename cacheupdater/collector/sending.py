"""The way of a drain to its new queue: sends one wave at a time, by the client's outbox and a link, as a forwarder does.

`drain` makes one `Sending`; `carrying` hands it waves. The turns of the link get the time of the wave's hints in place of the present
time. So a hint on the new queue is as old as it was on the old one. While the new queue is away, the wave waits in the outbox, and
frames that were not acknowledged are sent again. Nothing of the old queue is known here.

The link's turns run in a thread beside the loop (`aside`), and the loop touches the outbox only between turns.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.collector import links
from cacheupdater.core.hints import KIND_OF, Kind
from cacheupdater.errors import Misconfigured
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.target import HURRY_S

if TYPE_CHECKING:
    from collections import Counter

    from cacheupdater.collector.turn import Aside
    from cacheupdater.core.draining import Wave
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer
    from cacheupdater_client.outbox import Frame
    from cacheupdater_client.transports import Link

_WORDS = {Kind.CHANGE: "changes", Kind.MISS: "misses", Kind.TOUCH: "touches"}


class Sending:
    """Sends waves to one queue."""

    def __init__(self, link: Link, aside: Aside, *, name: str, observer: Observer, notices: Notices) -> None:
        """`name` is the queue's URL, for people."""
        self._link = link
        self._aside = aside
        self._name = name
        self._observer = observer
        self._notices = notices
        self._left: list[tuple[Frame, bool]] = []  # frames that have left the outbox in this turn
        self._outbox = Outbox(curious=True, settled=lambda *frame: self._left.append(frame))
        self._outbox.last_call = True  # hints of an old queue wait for no company
        self._undeclared = 0
        self.drained = dict.fromkeys(Kind, 0)
        """Hints that the queue has taken, repeated ones included."""

    @property
    def connected(self) -> bool:
        """Whether the queue takes hints."""
        return self._link.connected

    @property
    def sentence(self) -> str:
        """What was drained so far, for people."""
        kinds = ", ".join(f"{self.drained[kind]:,} {word}" for kind, word in _WORDS.items())
        return f"drained {sum(self.drained.values()):,} hints ({kinds})"

    async def greet(self) -> None:
        """Waits until the queue takes hints."""
        while not self._link.connected:
            await self.turn()
            await asyncio.sleep(HURRY_S)

    async def carry(self, wave: Wave) -> None:
        """Returns once the queue has acknowledged the wave, however long that takes. Raises Misconfigured if it never will."""
        outbox = self._outbox
        for kind, batch in wave.batches.items():
            outbox.add(kind, batch.counts, batch.tokens.items())
        while outbox:
            before = outbox.delivered
            await self.turn(wave.emitted_ms)
            await asyncio.sleep(0 if outbox.delivered > before else HURRY_S)
        self._refuse_loss()

    async def turn(self, emitted_ms: int = 0) -> None:
        """One turn of the link. Without hints that wait, it only notices whether the queue is there."""
        now = asyncio.get_running_loop().time()
        await self._aside(lambda: self._link.turn(self._outbox, now, emitted_ms))
        self._settle()
        links.tell(self._link, self._name, self._notices)

    def _settle(self) -> None:
        """Counts the frames that have left the outbox. In the loop: the link's thread must not touch the observer."""
        left, self._left = self._left, []
        for frame, taken in left:
            if taken:
                kind = KIND_OF[frame.kind]
                self.drained[kind] += frame.hints
                label = kind.name.lower()
                self._observer.count("drained", frame.hints, label=label)
                self._observer.count("forwarded", frame.keys, label=label)
                self._observer.count("merged", frame.hints - frame.keys, label=label)

    def _refuse_loss(self) -> None:
        """The outbox has let go of hints that the queue does not have. Raises Misconfigured: they stay on the old queue."""
        dropped: Counter[str] = self._outbox.dropped
        if dropped["refused"] or dropped["full"]:
            raise Misconfigured(
                f"{self._name} refuses a pack for good ({self._link.trouble or 'it is too large'}); its hints stay on the old queue."
                " Let the new queue take packs of 256 KiB, and start the drain again"
            )
        if dropped["undeclared"] > self._undeclared:  # an updater behind a socket names its prefixes
            self._observer.count("dropped", dropped["undeclared"] - self._undeclared, reason="undeclared")
            self._undeclared = dropped["undeclared"]
