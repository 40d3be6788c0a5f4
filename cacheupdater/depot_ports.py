"""The ports of what keeps a shared queue: `Depot` for the updaters that work on it, `Waiting` for an operator who looks at it.

`adapters.queue_depot` makes a `ports.Queue` of any depot, and a collector puts packs into one. `service.waiting` opens a `Waiting`.
One contract suite runs against every depot and its fake: `tests/contract/test_depot.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cacheupdater.core.lanes import Lane
    from cacheupdater.core.membership import Roster
    from cacheupdater.ports import Message


class Claimed(NamedTuple):
    """A partition that is ours under this epoch, and from where each of its lanes is read: the `done` that was committed last."""

    partition: int
    epoch: int
    offset: int
    urgent: int | None = None  # the same of the urgent lane; None: this depot has no lanes


class Progress(NamedTuple):
    """What a commit says of one lane."""

    epoch: int
    scan: int  # read up to here
    done: int  # everything before is finished
    finished: Sequence[
        int
    ] = ()  # offsets at or after `done` whose packs are finished too: they never come again


class Depot(Protocol):
    """Packs by partition, the cursors of their owners, and who owns what: kept outside of our processes.

    A depot has lanes or has none (`core.lanes`). Those in a SQL database have lanes. Streams of a Redis have none: all packs of a
    partition lie in one order there, and `Lane` is a partition's number. Offsets rise within a lane, begin at 1 and may have gaps.

    Each call is one round trip, or a bounded few, and holds or fails as a whole. Calls may overlap, and may be cancelled.
    Sessions run by the depot's own clock. Each call but `wait` and `close` raises Unavailable (nothing is known: it may have been
    carried out, or will be), or Faulty or Misconfigured (a person must act).
    """

    async def open(self) -> int:
        """Make the depot ready: what it needs exists, or is made. Returns the number of partitions. May be called again."""
        ...

    async def renew(self, member: str, session: float) -> Roster:
        """Our session runs for `session` seconds from now, even if it had run out.

        A partition whose owner's session has run out is free. If nobody claims it until its owner comes back, it may still
        be the owner's.
        """
        ...

    async def claim(self, member: str, partitions: Sequence[int]) -> Sequence[Claimed]:
        """Those of these partitions that are free or ours, each under a new epoch, which is higher than all before.

        We claim again what is ours already if we have not heard the answer to an earlier claim, or to give it to ourselves.
        Nothing is claimed if our session does not run.
        """
        ...

    async def release(self, member: str, epochs: Mapping[int, int]) -> None:
        """These partitions are free from now on, where the epoch is still this one."""
        ...

    async def leave(self, member: str) -> None:
        """Our session ends, and all our partitions are free at once."""
        ...

    async def read(self, after: Mapping[Lane, int], limit: int) -> Mapping[Lane, Sequence[Message]]:
        """By lane, the packs at the given offset and behind it, in order, at most `limit` each. Waits for none.

        A lane without such packs may be left out. One statement reads all lanes.
        """
        ...

    async def commit(self, member: str, progress: Mapping[Lane, Progress]) -> Collection[Lane]:
        """The lanes whose commit was refused: another epoch of their partition was given, or we have released it.

        Neither `done` nor `scan` ever moves back. Packs before `done`, and those at `finished`, are deleted in bounded batches.
        """
        ...

    async def put(self, packs: Sequence[tuple[int, bytes]]) -> None:
        """Each pack goes to the end of its lane in this partition, in this order; all of them or none."""
        ...

    async def wait(self, seconds: float) -> None:
        """Returns when packs may have come since the last `read` began, at the latest after `seconds`.

        May return early without need, but not at once while the depot is away: that would keep us busy.
        """
        ...

    async def close(self) -> None:
        """Give connections back. Nothing in the depot changes."""
        ...


@runtime_checkable
class TakesBack(Protocol):
    """A depot that takes packs back. It has lanes.

    Where a depot takes none, a pack that is not finished costs its own place and no more.
    """

    async def put_back(self, partition: int, packs: Sequence[bytes]) -> range:
        """They go to the end of the urgent lane, whatever their kind. Returns their offsets, which have no gaps.

        They are few, and have waited for longest. Behind a backlog of touches they would not be met again for long, and each
        further try would leave a copy of them there.
        """
        ...


class Lag(NamedTuple):
    """The waiting packs of one lane."""

    lane: Lane
    done: int  # no waiting pack has a lower offset
    end: int  # nor this one, or a higher one; packs that come later do
    packs: int
    owner: str | None = None  # the member that owns the partition now


class Waiting(Protocol):
    """The packs of a shared queue that no updater has finished, for an operator. Who calls is no member.

    Each call raises Unavailable, Faulty or Misconfigured, as those of `Depot` do.
    """

    async def lag(self) -> Sequence[Lag]:
        """One for each lane, in the order of partitions; none if nobody has made the queue yet. Changes and makes nothing."""
        ...

    async def read(self, after: Mapping[Lane, int], limit: int) -> Mapping[Lane, Sequence[Message]]:
        """As `Depot.read`. After `lag` only.

        A lane that is left out has no pack that waits there before the end that `lag` has named. Where that is not sure,
        raises Unavailable.
        """
        ...

    async def drop(self, lane: Lane, end: int) -> None:
        """No pack before `end`, which `lag` has named, waits any more, whoever owns the partition. `done` never moves back."""
        ...

    async def close(self) -> None: ...
