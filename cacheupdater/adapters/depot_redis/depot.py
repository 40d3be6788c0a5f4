"""The ports `Depot` and `Waiting` on Redis Streams: packs and ownership in a Redis of one's own, in the cache's Redis, or in a cluster.

The composition root makes one `RedisDepot` per process; a queue or a collector calls it. `servers` has the connections,
`scripts` the scripts, `replies` the meaning of errors. `protocol.streams` has what producers share: the URL, the names of the
keys, and how packs are added.

The roster of members lies in one slot, and each partition in its own, so no script can see both in a cluster. Hence a claim has
two steps: the roster gives a new epoch, and the partition refuses all older epochs from then on (`enter.lua`). A commit has
two as well: the roster says whether the partition is still ours, and the partition compares the epoch. The second decides.

What Redis has lost is lost: hints in a Redis without a replica or an append-only file live as long as that Redis. All numbers
and epochs begin at Redis' time, so none comes twice in a Redis that was restarted empty or from an older state. Then owners
find that their partitions are free, claim them anew, and read on; the loss is counted and told.

Beside `+@connection`, an ACL user needs for streams named hints, from Redis 6.2 on (clients need the second line only):
    ~{hints* +evalsha +script|load +info +time +xread +hget +hset +hsetnx +hdel +hgetall +hincrby +xadd +xlen +xtrim +xdel
    ~{hints* +evalsha +script|load +time +hget +hset +hincrby +xadd +xlen +xtrim
In a cluster also +cluster|slots (in Redis 6.2 +cluster), and this module +command, which redis-py may use.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.adapters.depot_redis import scripts
from cacheupdater.adapters.depot_redis.servers import Call, Servers
from cacheupdater.core.membership import Roster
from cacheupdater.depot_ports import Claimed, Lag
from cacheupdater.errors import CacheUpdaterError, Faulty, Misconfigured
from cacheupdater.ports import Message
from cacheupdater_client.protocol import streams

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cacheupdater.adapters.depot_redis.servers import Entry
    from cacheupdater.depot_ports import Progress
    from cacheupdater.ports import Observer, Troubles

POLL_S = 0.1  # between looks at a cluster, where no command can wait for several slots
TOGETHER = 200  # partitions of which one exchange asks: some milliseconds
LOSS_STANDS_S = 60.0  # the streams are well at once, but old values stay until their keys are read again
GATHER_S = 0.005  # packs that come within this time of the first are read together


class RedisDepot:
    """The streams of one address, as one process uses them."""

    def __init__(self, address: streams.Address, *, observer: Observer, notices: Troubles) -> None:
        self._address = address
        self._stream = address.stream
        self._roster = streams.roster_key(address.stream)
        self._servers = Servers(address)
        self._observer = observer
        self._notices = notices
        self._partitions = 0
        self._given = 0  # the highest epoch that the roster was known to have given
        self._floor = 0  # the highest that any Redis has ever told us
        self._made = b""  # when the roster was made
        self._loss_over = 0.0  # when the last loss is long enough ago
        self._after: dict[
            int, int
        ] = {}  # by partition, what the next read will ask for; of reads since the last wait
        self._watched: frozenset[int] = frozenset()  # the partitions that a wait looks at
        self._unwatched = asyncio.Event()  # another partition is read

    async def open(self) -> int:
        """Compares the number of partitions, or sets it."""
        if not self._address.evicting:
            await self._refuse_eviction()
        wanted = self._address.partitions
        there = await self._servers.keep(self._roster, "partitions", wanted or streams.PARTITIONS)
        self._partitions = self._found(there)
        return self._partitions

    def _found(self, there: str) -> int:
        """The number of partitions that the roster names. Raises Misconfigured if it cannot be ours, or not what the URL says."""
        wanted = self._address.partitions
        if not there.isdecimal() or not 1 <= int(there) <= streams.PARTITIONS_MAX:
            raise Misconfigured(f"the number of partitions in {self._roster} is not ours; remove this key")
        if wanted and int(there) != wanted:
            raise Misconfigured(
                f"the streams {self._stream} have {there} partitions, and the URL says {wanted}:"
                " write the same number, or choose another name"
            )
        return int(there)

    async def _refuse_eviction(self) -> None:
        for policy in await self._servers.policies():
            if policy != "noeviction":
                raise Misconfigured(
                    f"this Redis may throw hints away when its memory is full (maxmemory-policy {policy}):"
                    " use a Redis with noeviction, or write evicting=allowed into the URL"
                )

    # --- who owns what --------------------------------------------------------------------------------

    async def renew(self, member: str, session: float) -> Roster:
        """As the port says. Tells of a Redis that has lost what it knew."""
        known = self._given
        length = max(1, round(session * 1000))
        said = await self._servers.run(scripts.RENEW, 1, self._roster, member, length, self._partitions)
        try:
            given, partitions = int(said[0]), int(said[1])
            owners = {
                int(owned): owner.decode() for owned, owner in zip(said[3][::2], said[3][1::2], strict=True)
            }
            roster = Roster(frozenset(name.decode() for name in said[2]), owners)
        except (ValueError, TypeError, IndexError, AttributeError) as e:
            raise Faulty(f"another program has written to {self._roster}; remove this key") from e
        if partitions != self._partitions:
            raise Misconfigured(f"the streams {self._stream} have another number of partitions now: restart")
        made, self._made = self._made, bytes(said[4])
        self._compare(known, given, same=made in {b"", self._made})
        return roster

    def _compare(self, known: int, given: int, *, same: bool) -> None:
        """A roster that has forgotten an epoch is older than what we have seen, and so are the streams. One that is not the
        same was made anew, perhaps with higher epochs: other members have come before us."""
        if same and given >= known:
            if asyncio.get_running_loop().time() >= self._loss_over:
                self._notices.over("depot_lost", self._stream)
            self._note(given)
            return
        self._given = given
        self._tell_loss()

    def _tell_loss(self) -> None:
        self._loss_over = asyncio.get_running_loop().time() + LOSS_STANDS_S
        self._observer.count("lost_packs", 1, reason="redis")
        self._notices.trouble(
            "depot_lost",
            self._stream,
            "this Redis has come back empty, or without its latest entries; hints that waited there are lost",
        )

    def _note(self, epoch: int) -> None:
        self._given, self._floor = max(self._given, epoch), max(self._floor, epoch)

    async def claim(self, member: str, partitions: Sequence[int]) -> Sequence[Claimed]:
        """As the port says."""
        wanted = [each for each in partitions if 0 <= each < self._partitions]
        if not wanted:
            return ()
        said = await self._servers.run(scripts.CLAIM, 1, self._roster, member, self._floor + 1, *wanted)
        epochs = {int(said[at]): int(said[at + 1]) for at in range(0, len(said), 2)}
        entered = await self._servers.run_all(
            [Call(scripts.ENTER, (1, self._keys(each)[0], epoch)) for each, epoch in epochs.items()]
        )
        gained = []
        for (partition, epoch), (there, done) in zip(epochs.items(), entered, strict=True):
            self._floor = max(self._floor, int(there))
            if int(there) == epoch and done:
                self._note(epoch)
                gained.append(Claimed(partition, epoch, int(done)))
        refused = epochs.keys() - {each.partition for each in gained}
        if refused:  # the next claim asks for epochs above those that the partitions know
            await self.release(member, {each: epochs[each] for each in refused})
        return gained

    async def release(self, member: str, epochs: Mapping[int, int]) -> None:
        """As the port says."""
        if epochs:
            await self._servers.run(scripts.RELEASE, 1, self._roster, member, *_pairs(epochs))

    async def leave(self, member: str) -> None:
        """As the port says."""
        await self._servers.run(scripts.LEAVE, 1, self._roster, member)

    # --- packs ----------------------------------------------------------------------------------------

    async def read(self, after: Mapping[int, int], limit: int) -> Mapping[int, Sequence[Message]]:
        """As the port says. Reads up to twice as much as it returns where both streams of a partition are full."""
        if not after:
            return {}
        self._after |= after
        if not self._watched.issuperset(after):
            self._unwatched.set()
        found = await self._servers.read(self._streams(after), limit)
        messages: dict[int, Sequence[Message]] = {}
        for partition in after:
            _, touches, kept = self._keys(partition)
            entries = _merged(found.get(touches, []), found.get(kept, []))[:limit]
            if entries:
                messages[partition] = [Message(number, pack) for number, pack in entries]
                self._after[partition] = entries[-1][0] + 1
        return messages

    async def commit(self, member: str, progress: Mapping[int, Progress]) -> Collection[int]:
        """As the port says."""
        if not progress:
            return ()
        epochs = {partition: said.epoch for partition, said in progress.items()}
        standing = await self._servers.run(scripts.STANDING, 1, self._roster, member, *_pairs(epochs))
        ours = [partition for partition, stands in zip(progress, standing, strict=True) if stands]
        replies = await self._servers.run_all([self._commit(each, progress[each]) for each in ours])
        refused = set(progress) - set(ours)
        if -2 in replies:  # a node of a cluster, say, while the roster's has lost nothing
            self._tell_loss()
        for partition, trimmed in zip(ours, replies, strict=True):
            if trimmed < 0:
                refused.add(partition)
            elif trimmed:  # by producers: they have counted where they trimmed
                self._observer.count("lost_packs", trimmed, reason="trimmed")
        return refused

    def _commit(self, partition: int, said: Progress) -> Call:
        return Call(
            scripts.COMMIT, (3, *self._keys(partition), said.epoch, said.scan, said.done, *said.finished)
        )

    async def put(self, packs: Sequence[tuple[int, bytes]]) -> None:
        """As the port says. In a cluster one partition after the other: after an error, some may hold their packs already."""
        if any(not 0 <= partition < self._partitions for partition, _ in packs):
            raise Faulty(f"the streams {self._stream} have {self._partitions} partitions only")
        if not packs:
            return
        if not self._servers.is_cluster:
            await self._servers.run(scripts.PUT, *streams.put_args(self._address, packs))
            return
        shares: dict[int, list[tuple[int, bytes]]] = {}
        for each in packs:
            shares.setdefault(each[0], []).append(each)
        await self._servers.run_all(
            [Call(scripts.PUT, streams.put_args(self._address, share)) for share in shares.values()]
        )

    # --- waiting packs --------------------------------------------------------------------------------

    async def lag(self) -> Sequence[Lag]:
        """As the port says. Some partitions at a time, for a Redis with thousands answers other calls in between."""
        there, owned = await self._servers.run(scripts.LOOK, 1, self._roster)
        if not there and not self._address.partitions:
            return ()
        # clients may have sent before the first updater has come
        partitions = range(
            self._found(there.decode("utf-8", "replace")) if there else self._address.partitions or 0
        )
        owners = {
            int(each): name.decode("utf-8", "replace")
            for each, name in zip(owned[::2], owned[1::2], strict=True)
        }
        lags = []
        for first in range(0, len(partitions), TOGETHER):
            some = partitions[first : first + TOGETHER]
            said = await self._servers.run_all([Call(scripts.LAG, (3, *self._keys(each))) for each in some])
            lags += [
                Lag(each, int(done), int(end), int(packs), owners.get(each))
                for each, (done, end, packs) in zip(some, said, strict=True)
            ]
        return lags

    async def drop(self, partition: int, end: int) -> None:
        """As the port says."""
        await self._servers.run(scripts.DROP, 3, *self._keys(partition), end)

    async def wait(self, seconds: float) -> None:
        """Waits for a pack behind those that were read since the last wait, without a question meanwhile.

        A read of other partitions ends the wait early. In a cluster the wait is a short rest.
        """
        after, self._after = self._after, {}
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self._servers.is_cluster or not after:
            await asyncio.sleep(min(seconds, POLL_S))
            return
        self._watched = frozenset(after)
        self._unwatched.clear()
        watching = asyncio.ensure_future(self._watch(after, seconds))
        changing = asyncio.ensure_future(self._unwatched.wait())
        try:
            await asyncio.wait([watching, changing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            changing.cancel()
            await asyncio.wait([watching, changing])
        await asyncio.sleep(min(GATHER_S, max(0.0, until - loop.time())))

    async def _watch(self, after: Mapping[int, int], seconds: float) -> None:
        try:
            await self._servers.await_entries(self._streams(after), seconds)
        except CacheUpdaterError:  # the next call tells
            await asyncio.sleep(min(POLL_S, seconds))

    async def close(self) -> None:
        """As the port says."""
        await self._servers.close()

    def _keys(self, partition: int) -> tuple[str, str, str]:
        return streams.keys_of(self._stream, partition)

    def _streams(self, after: Mapping[int, int]) -> dict[str, int]:
        return {key: at for partition, at in after.items() for key in self._keys(partition)[1:]}


def _pairs(epochs: Mapping[int, int]) -> list[int]:
    return [number for pair in epochs.items() for number in pair]


def _merged(touches: list[Entry], kept: list[Entry]) -> list[Entry]:
    if touches and kept:
        return sorted(touches + kept)
    return touches or kept
