"""The spill: where hints of a collector wait on disk while its queue is away, so that their clients need not keep them.

`collector` makes one if the operator names a directory, and the forwarder asks it in each turn. While the queue is away,
changes and misses go to disk at once, and touches when the memory is full. Those that wait in the outbox at that moment are
written too, and stay in the outbox: they arrive twice at worst. All packs of a turn share one fsync. Once the queue is back,
`replay` sends everything again. `core.spilling` decides, `adapters.spill_files` has the files.

A disk that is full or faulty costs nothing but the spill: the hints go on as if there were none, and another try follows
after `RETRY_S`. Whatever blocks runs beside the loop, in the thread of the link, and the loop waits for the thread before it
touches the spill again. So nothing needs a lock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from cacheupdater.collector.gathered import KINDS
from cacheupdater.collector.replay import Replay
from cacheupdater.collector.spilled_packs import opened, packs_of
from cacheupdater.core.hints import KIND_OF
from cacheupdater.core.metrics import Tally
from cacheupdater.core.spilling import Absence, Spilling
from cacheupdater.errors import Unavailable
from cacheupdater_client.outbox import BYTES_MAX, KEYS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.adapters.spill_files import SpillFiles
    from cacheupdater.collector.gathered import Batch, Gathered
    from cacheupdater.collector.turn import Aside, Moment
    from cacheupdater.core.spilling import Limits, Reason, Segment
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer
    from cacheupdater_client.outbox import Outbox

RETRY_S = 5.0  # seconds after a fault of the disk; meanwhile hints wait in memory, as without a spill


class Spill:
    """Writes hints to disk, and knows what lies there. `replay` reads."""

    def __init__(
        self,
        files: SpillFiles,
        limits: Limits,
        gathered: Gathered,
        *,
        observer: Observer,
        notices: Notices,
        now: float,
    ) -> None:
        self._files = files
        self._gathered = gathered
        self._observer = observer
        self._notices = notices
        self._spilling = Spilling(limits)
        self._tally = Tally()  # counts of the thread, for the observer
        self._absence = Absence(now)
        self._retry_at = now
        self._fault = ""  # of the disk, since the last turn
        self.replay = Replay(self._spilling, files, self._tally, now=now)
        found = [
            self._spilling.find(number, urgent=urgent, size=size) for number, urgent, size in files.found()
        ]
        self._unread = deque(sorted(found, key=lambda each: not each.urgent))  # left by an earlier process

    async def keep(self, outbox: Outbox, aside: Aside, moment: Moment, *, connected: bool) -> bool:
        """Whether changes and misses of this turn are on disk, and shall not enter the outbox."""
        self._absence.look(moment.now, outbox.delivered, connected=connected, waiting=bool(outbox))
        return self._is_wanted(outbox) and await self._save(outbox, aside, moment)

    async def go_on(self, outbox: Outbox, aside: Aside, moment: Moment) -> None:
        """Replays, if the queue takes hints; removes what is finished or too old. Called once fresh hints are in the outbox."""
        if self._absence.open and not self._is_wanted(outbox) and not outbox.last_call:
            await self.replay.turn(outbox, aside, moment.now, moment.now_ms)
        await self._tidy(aside, moment.now_ms)
        self._tell(moment.now_ms)

    def _is_wanted(self, outbox: Outbox) -> bool:
        """Whether the queue is away, or the outbox has no room for all changes and misses that may come: some that it has may
        be on disk already."""
        keys, size = outbox.size
        return self._absence.away or keys > KEYS_MAX // 2 or size > BYTES_MAX // 2

    def close(self) -> None:
        """Leaves the directory to the next process."""
        self.replay.close()
        self._files.close()

    # --- to disk --------------------------------------------------------------------------------------

    async def _save(self, outbox: Outbox, aside: Aside, moment: Moment) -> bool:
        """Writes what is owed, and the touches for which memory has no room. False if the disk does not take them."""
        if moment.now < self._retry_at:
            return False
        touches = moment.drains and not self._gathered.touches_fit(outbox)
        taken = self._gathered.take_out(touches=touches)
        batches = [*self._gathered.handed, *taken]
        if not batches:
            return True
        if await aside(lambda: self._write(batches, moment.now_ms)):
            self._gathered.kept(taken)
            self._notices.over("spill_failed", "")
            return True
        self._gathered.put_back(taken)
        self._retry_at = moment.now + RETRY_S
        return False

    def _write(self, batches: Sequence[tuple[str, Batch]], now_ms: int) -> bool:
        """In the thread. Whether all of it lies on the disk."""
        try:
            for part, batch in batches:
                for pack, hints in packs_of(KINDS[part], batch, now_ms):
                    self._append(KINDS[part], pack, hints, now_ms)
            self._files.sync()
        except Unavailable as e:
            self._fault = str(e)
            self._spilling.seal()  # after a failed write or sync, nobody knows what these files hold
        for number in self._files.written:
            if not self._spilling.is_open(number):
                self._files.seal(number)
        return not self._fault

    def _append(self, kind: int, pack: bytes, hints: int, now_ms: int) -> None:
        for segment, reason in self._spilling.to_drop(now_ms, len(pack)):
            self._drop(segment, reason)
        segment = self._spilling.place(kind, now_ms)
        try:
            size = self._files.append(segment.number, pack, urgent=segment.urgent)
        except Unavailable:
            if not segment.size:  # it has no file, or an empty one
                self._drop(segment, "full")
            raise
        self._spilling.add(segment, kind, now_ms, hints=hints, size=size)
        self._tally.add("spilled", hints, KIND_OF[kind].name.lower())

    # --- what lies there ------------------------------------------------------------------------------

    async def _tidy(self, aside: Aside, now_ms: int) -> None:
        """Removes what is finished or too old, and looks at one segment of an earlier process."""
        if self.replay.finished or self._unread or self._spilling.to_drop(now_ms):
            await aside(lambda: self._tidied(now_ms))

    def _tidied(self, now_ms: int) -> bool:
        if self._unread:
            self._look_into(self._unread.popleft())
        for segment, reason in self._spilling.to_drop(now_ms):
            self._drop(segment, reason)
        while self.replay.finished:
            self._remove(self.replay.finished.pop())
        return True

    def _look_into(self, segment: Segment) -> None:
        """Learns what an earlier process has left in this segment. A segment without a sound pack is removed."""
        if segment not in self._spilling:
            return
        try:
            with opened(self._files, segment.number) as packs:
                for pack in packs:
                    hints = sum(pack.counts) or len(pack.keys)
                    self._spilling.add(segment, pack.kind, pack.emitted_ms, hints=hints)
            if not segment.ends_ms:
                self._tally.add("spill_dropped", packs.damaged, reason="damaged")
                self._remove(segment)
        except Unavailable as e:
            self._fault = str(e)
            self._tally.add("spill_dropped", 1, reason="damaged")
            self._spilling.remove(segment)  # the file stays for somebody who can read it

    def _drop(self, segment: Segment, reason: Reason) -> None:
        if not segment.ends_ms and segment in self._unread:
            self._unread.remove(segment)
            self._look_into(segment)  # to count what is lost
        self._tally.add("spill_dropped", segment.hints, reason=reason)
        self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        self.replay.forget(segment)
        self._spilling.remove(segment)
        try:
            self._files.remove(segment.number)
        except Unavailable as e:
            self._fault = str(e)

    def _tell(self, now_ms: int) -> None:
        """Reports what was counted in the thread, what lies on disk, and the fault of the disk."""
        for (metric, label, reason), amount in self._tally.drain().items():
            self._observer.count(metric, amount, label=label, reason=reason)
        self._observer.level("spill_hints", self._spilling.hints)
        self._observer.level("spill_bytes", self._spilling.size)
        self._observer.level("spill_age_seconds", self._spilling.age_s(now_ms))
        fault = self._fault or self.replay.fault
        self._fault = self.replay.fault = ""
        if fault:
            self._notices.trouble("spill_failed", "", f"{fault}; the collector goes on as without a spill")
