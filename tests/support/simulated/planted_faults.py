"""Faults that are put into the service on purpose: a campaign that does not find them proves nothing."""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import replace
from math import inf
from zlib import crc32

from cacheupdater.adapters.queue_kafka.commits import Done
from cacheupdater.adapters.queue_kafka.inboxes import Inbox
from cacheupdater.core.answers import UNCHANGED, Result
from cacheupdater.core.hints import Kind
from cacheupdater.testing import memory_fleet
from cacheupdater_client.protocol import fence, lease
from simulated.cache import SimWriter
from simulated.fleet import SCALE
from simulated.history import OWNED
from simulated.plan import BUDGETS
from simulated.planted_in_feeds import IN_FEEDS
from simulated.updater import SimEngine
from simulated.world import PlantedFault


class NaiveWriter(SimWriter):
    """Plain SET and DEL, without a fence."""

    def put(self, stamp, entry, life, *, form):
        key, value, ttl_ms = entry
        if value is None:
            self._cache.server.delete(key)
        else:
            self._cache.server.set(key, value, ttl_ms)
        return fence.WRITTEN


class LateTokenWriter(SimWriter):
    """The token is taken when the write arrives: after the database was read."""

    def put(self, stamp, entry, life, *, form):
        return super().put(fence.stamp_of(self._cache.server.token(), "json"), entry, life, form=form)


class ContentWriter(SimWriter):
    """A refused write counts as finished, so no refresh follows."""

    async def write(self, token, entries, **options):
        said = await super().write(token, entries, **options)
        return [UNCHANGED if answer.result is Result.REFUSED else answer for answer in said]


MARKED_S = 2.0
FAR = 1_000_000  # an offset that no schedule reaches


class Naive(PlantedFault):
    name = "naive"

    def writer(self, cache, process, world):
        return NaiveWriter(cache, process, world)


class LateToken(PlantedFault):
    name = "token after the read"

    def writer(self, cache, process, world):
        return LateTokenWriter(cache, process, world)


class Content(PlantedFault):
    name = "no refresh after a refusal"

    def writer(self, cache, process, world):
        return ContentWriter(cache, process, world)


class ForgetsPausedChanges(PlantedFault):
    """A pause drops changes as it drops reads: their old values stay."""

    name = "forgets paused changes"

    def engine(self, engine):
        without = engine._pausing.without_paused

        def without_any(hints):
            return without(hints._replace(kind=Kind.TOUCH))._replace(kind=hints.kind)

        engine._pausing.without_paused = without_any

    def concerns(self, plan):
        return bool(plan.paused)


class TakesEachChangeForASet(PlantedFault):
    """A change that somebody has announced leaves what is there, as a SET does, while nothing loads its key."""

    name = "takes each change for a set"

    def engine(self, engine):
        on_hints = engine.on_hints
        engine.on_hints = lambda batch, now: on_hints((hints._replace(is_set=True) for hints in batch), now)

    def concerns(self, plan):
        return bool(plan.paused)


class CommitScan(PlantedFault):
    name = "commits scan"

    def engine(self, engine):
        cursor, advance = engine.cursor, engine.cursor.advance
        engine.cursor = _ScanCursor(cursor, advance)


class _ScanCursor:
    """Reports everything as done that has been read."""

    def __init__(self, cursor, advance):
        self._cursor = cursor
        self._advance = advance

    def __getattr__(self, name):
        return getattr(self._cursor, name)

    def advance(self):
        self._advance()
        return self._cursor.scan


class DeafMarks(PlantedFault):
    name = "absent marks outlive changes"

    def concerns(self, plan):
        return plan.ttl < MARKED_S  # a value that was there is missed again soon

    def plan(self, plan):
        """Makes marks long, and keeps all: in most schedules they would end by themselves before the fault matters."""
        return replace(plan, missing_ttl=MARKED_S, limits=replace(plan.limits, absent=100))

    def engine(self, engine):
        engine._marks.end = lambda keys: None


class NoHoldOff(PlantedFault):
    name = "no hold-off"

    def plan(self, plan):
        return replace(plan, hold_off_ms=0)


class Careless(PlantedFault):
    name = "dropped changes leave the value"

    def engine(self, engine):
        def forget(namespace, keys, open_packs, **_):
            for open_pack in open_packs:
                open_pack.release(1)

        engine._removals.ask = forget


class Greedy(PlantedFault):
    name = "permits are not given back"

    def partition(self, partition):
        partition._give_back = lambda unit, task: None


class Insatiable(PlantedFault):
    name = "reads on while full"

    def engine(self, engine):
        engine.__class__ = _NeverFull


class _NeverFull(SimEngine):
    full = False


# --- of the loader, the writer, the fleet and the file ---------------------------------------------------


class ByPlace(PlantedFault):
    name = "rows are matched by their place"

    def loader(self, loader):
        shapes = {False: dict, True: lambda row: [row, row]}

        def by_place(keys, bound, result, *, asked):
            names, rows = result
            shape, at = shapes[loader._many], names.index("version")
            return {key: shape({"version": row[at]}) for key, row in zip(keys, rows, strict=False)}

        loader.matching.match = by_place


class Crossed(PlantedFault):
    name = "replies of an exchange are crossed"

    def writer(self, cache, process, world):
        writer = SimWriter(cache, process, world)
        exchange = writer.redis._exchange

        async def crossed(calls, parts):
            return (await exchange(calls, parts))[::-1]

        writer.redis._exchange = crossed
        return writer


class Mixed(PlantedFault):
    name = "a call gets the reply of another one that is sent with it"

    def writer(self, cache, process, world):
        writer = SimWriter(cache, process, world)
        node = writer.redis._node
        pick = node._pick

        def mixing(**how):
            session = pick(**how)
            if "_exchange" not in vars(session):
                _mix(session)
            return session

        node._pick = mixing
        return writer


def _mix(session):
    exchange, fitting, sent = session._exchange, session._fitting, []

    def remembered(packed):
        sent[:] = fitting(packed)
        return list(sent)

    async def mixed(commands):
        sent.clear()
        replies = await exchange(commands)
        others = [each.replies.result() for each in sent if not each.replies.cancelled()]
        return next((said for said in others if len(said) == len(replies)), replies)

    session._exchange, session._fitting = mixed, remembered


class Overwriter(SimWriter):
    """Overwrites foreign values."""

    async def write(self, token, entries, *, form="type", replace=False):
        return await super().write(token, entries, form=form, replace=True)


class Overwrites(PlantedFault):
    name = "overwrites foreign"

    def writer(self, cache, process, world):
        return Overwriter(cache, process, world)


class Removes(PlantedFault):
    name = "dropped changes remove foreign values"

    def concerns(self, plan):
        return plan.foreign > 0.0 and not plan.replace

    def writer(self, cache, process, world):
        writer = SimWriter(cache, process, world)
        invalidate = writer.invalidate
        writer.invalidate = lambda keys, forms, *, only_ours: invalidate(keys)
        return writer


class Anew(PlantedFault):
    name = "an old value's time begins anew"

    def concerns(self, plan):
        return plan.fail_safe > 0.0

    def writer(self, cache, process, world):
        return _AnewWriter(cache, process, world)


class _AnewWriter(SimWriter):
    """Counts from the request, as an updater that forgets would."""

    def prolong_one(self, key, grace, form):
        server = self._cache.server
        if server.get(key) and server.floor(key):
            server.set(key, server.get(key), grace.ttl_ms)
        return lease.PROLONGED


class Unheard(PlantedFault):
    name = "no value lives on"

    def concerns(self, plan):
        return plan.away

    def engine(self, engine):
        engine._prolonging.take = lambda now: None


class Unaware(PlantedFault):
    name = "values with a waiting change live on"

    def concerns(self, plan):
        """Some changes are announced by a hint alone: no floor forbids that the old value lives on."""
        return plan.fail_safe > 0.0 and "hint" in plan.ways and "db_outage" in plan.rates

    def engine(self, engine):
        engine._prolonging._awaits_a_change = lambda key: False


class _OfFleets(PlantedFault):
    def concerns(self, plan):
        return plan.fleet


class Undying(_OfFleets):
    name = "a claim is believed for ever"

    def pricing(self, pricing):
        for sharing in pricing._sharings.values():
            take = sharing._take
            sharing._take = lambda grant, share, until, take=take: take(grant, share, inf)


class Unshared(_OfFleets):
    name = "each member of a fleet spends the whole budget"

    def pricing(self, pricing):
        for sharing in pricing._sharings.values():
            take, whole = sharing._take, sharing._budget.rate
            sharing._take = lambda grant, share, until, take=take, whole=whole: take(grant, whole, until)


class Credulous(_OfFleets):
    name = "a new record is believed at once"

    def pricing(self, pricing):
        memory_fleet.YOUTH = 0.0  # until the schedule ends


class Hopeful(_OfFleets):
    """An earlier rule of ours: owners that reach Redis have repeated their claims by then; one that is cut off has not."""

    name = "a new record is believed after two exchanges"

    def pricing(self, pricing):
        memory_fleet.YOUTH = 6.0 / SCALE  # until the schedule ends


class Strayed(PlantedFault):
    name = "learned keys go to another partition"

    def pricing(self, pricing):
        remembering = pricing._remembering
        if remembering is not None:
            parts = remembering._parts
            remembering._parts = {number + 1: part for number, part in parts.items()}


class Forgetful(PlantedFault):
    name = "learned prices are forgotten"

    def state(self, state):
        read = state.read

        def read_without_prices():
            data = read()
            if state.found:  # a whole file of ours: leaves its keys, and takes its price out
                header = json.loads(state.found[2]) | {"prices": {}}
                text = json.dumps(header).encode()
                pieces = [struct.pack("<I", len(text)), text, *state.found[3:]]
                data = data[:10] + struct.pack("<I", crc32(b"".join(pieces))) + b"".join(pieces)
            return data

        state.read = read_without_prices


# --- of a queue that takes hints back -------------------------------------------------------------------


class _OfReturned(PlantedFault):
    def concerns(self, plan):
        return plan.group is None and plan.limits.put_back_after < 1.0


class ReturnsReads(_OfReturned):
    name = "changes are put back as touches"

    def engine(self, engine):
        find = engine.putting_back.find

        def find_touches(now):
            found = find(now)
            return found and found._replace(packs=[each._replace(kind=Kind.TOUCH) for each in found.packs])

        engine.putting_back.find = find_touches


class LeavesEarly(_OfReturned):
    name = "hints leave their place before they are put back"

    def engine(self, engine):
        find, placed = engine.putting_back.find, engine.putting_back.placed

        def find_and_leave(now):
            found = find(now)
            if found:
                placed(found, range(FAR, FAR + 1), now)
            return found

        engine.putting_back.find = find_and_leave


class LeansOnNothing(_OfReturned):
    name = "what leans on hints that were put back is done"

    def engine(self, engine):
        placed = engine.putting_back.placed
        engine.putting_back.placed = lambda put_back, offsets, now: placed(
            put_back._replace(scan=inf), offsets, now
        )


# --- of a group -----------------------------------------------------------------------------------------


class _OfAdapters(PlantedFault):
    def concerns(self, plan):
        return plan.group is not None and plan.group.adapter


class _OfMembers(PlantedFault):
    def concerns(self, plan):
        return plan.group is not None and not plan.group.adapter


class AnyEpoch(_OfMembers):
    name = "the epoch is not checked at commit"

    def member(self, consumer):
        consumer.may_commit = lambda partition, epoch: True


class AdaptersAnyEpoch(_OfAdapters):
    name = "the adapter does not check the epoch"

    def adapter(self, queue):
        async def commit(partition, *, epoch, done, finished=()):
            await queue._commits.add(partition, Done(queue._owned.inbox(partition).epoch, done))

        queue.commit = commit


class Whole(PlantedFault):
    name = "each member spends the whole budget"

    def concerns(self, plan):
        """Several members, each with a part, and a rate that they can reach."""
        limited = plan.budget < BUDGETS[-1] or plan.quota > 0.0
        return (
            plan.group is not None and not plan.fleet and min(plan.updaters, plan.partitions) > 1 and limited
        )

    def pricing(self, pricing):
        own = pricing._partition_shares.own
        pricing._partition_shares.own = lambda partitions, now, *, of, sources: own(
            range(of) if partitions else (), now, of=of, sources=sources
        )


class PaidEarly(PlantedFault):
    name = "what waits for Redis is spent already"

    def concerns(self, plan):
        return plan.crowded and "redis_delay" in plan.rates

    def engine(self, engine):
        schedule = engine._dedup.schedule
        take = schedule._take

        def take_and_spend(backlog, rows, now):
            unit = take(backlog, rows, now)
            unit.receipt._spend(now)
            return unit

        schedule._take = take_and_spend


class WholeAgain(PlantedFault):
    name = "a reloaded member spends the whole budget"

    def concerns(self, plan):
        return plan.reloads > 0.0

    def reload(self, generation):
        own = generation.pricing.own
        generation.pricing.own = lambda partitions, *, of: own(range(of) if partitions else (), of=of)


class KeptEngine(PlantedFault):
    name = "work of an older epoch is kept"

    def __init__(self):
        self._engines = {}

    def engine(self, engine):
        owner = OWNED.get()
        older = self._engines.setdefault((owner.process, owner.partition), engine)
        engine.__dict__ = older.__dict__


class KeptPlace(_OfMembers):
    name = "an older epoch's place is kept"

    def member(self, consumer):
        first, inboxes = consumer.first_offset, consumer._inboxes
        consumer.first_offset = lambda partition: (
            inboxes[partition].at if partition in inboxes else first(partition)
        )


class StaticFromScan(_OfMembers):
    name = "a static member starts from scan"

    def __init__(self):
        self._places = {}  # by instance: its last inboxes

    def member(self, consumer):
        first, before = consumer.first_offset, self._places.get(consumer.instance, {})
        self._places[consumer.instance] = consumer._inboxes
        consumer.first_offset = lambda partition: (
            before[partition].at if partition in before else first(partition)
        )


class Latest(_OfMembers):
    name = "new partitions are read from their end"

    def member(self, consumer):
        first, broker = consumer.first_offset, consumer._broker
        consumer.first_offset = lambda partition: first(partition) or len(broker.logs[partition])


class Uncounted(PlantedFault):
    name = "what retention took is not counted"

    def concerns(self, plan):
        return plan.group is not None and "group_retention" in plan.rates

    def member(self, consumer):
        broker = consumer._broker

        def pass_over(partition, first, end):
            broker.skipped[partition] = end

        consumer.count_lost = pass_over

    def adapter(self, queue):
        queue._owned._say_gone = lambda partition, gone, reason: None


class Leftovers(_OfAdapters):
    name = "packs of an older epoch are delivered"

    def adapter(self, queue):
        owned, inbox = queue._owned, queue._owned.inbox

        def inbox_that_forgets_nothing(partition):
            if partition not in owned.inboxes:
                owned.inboxes[partition] = _FullLane()
            return inbox(partition)

        owned.inbox = inbox_that_forgets_nothing


class _FullLane(Inbox):
    """Removes both guards: packs read for an epoch are dropped with it, and no pack is given on twice."""

    unpacked = property(lambda _: 0, lambda *_: None)

    def quiet(self):
        """Keeps its packs."""


class Wordless(PlantedFault):
    name = "hand-over does not commit"

    def partition(self, partition):
        hand_over = partition.hand_over

        async def hand_over_without_a_word(within):
            partition._committer.commit = _nothing
            await hand_over(within)

        partition.hand_over = hand_over_without_a_word


async def _nothing():
    """Commits nothing."""


class Hasty(PlantedFault):
    name = "commit after settled"

    def supervisor(self, supervisor):
        hand_over, self._late = supervisor._hand_over, []

        async def hand_over_in_the_background(lost, within):
            if supervisor._draining:
                await hand_over(lost, within)
            else:
                self._late.append(asyncio.get_running_loop().create_task(hand_over(lost, within)))

        supervisor._hand_over = hand_over_in_the_background


PLANTED_FAULTS = {
    each.name: each
    for each in (
        PlantedFault,
        Naive,
        LateToken,
        Content,
        ForgetsPausedChanges,
        TakesEachChangeForASet,
        CommitScan,
        DeafMarks,
        NoHoldOff,
        Careless,
        Greedy,
        Insatiable,
        ByPlace,
        Crossed,
        Mixed,
        Overwrites,
        Removes,
        Anew,
        Unheard,
        Unaware,
        Undying,
        Unshared,
        Credulous,
        Hopeful,
        Strayed,
        Forgetful,
        ReturnsReads,
        LeavesEarly,
        LeansOnNothing,
        AnyEpoch,
        AdaptersAnyEpoch,
        Whole,
        PaidEarly,
        WholeAgain,
        KeptEngine,
        KeptPlace,
        StaticFromScan,
        Latest,
        Uncounted,
        Leftovers,
        Wordless,
        Hasty,
        *IN_FEEDS,
    )
}
