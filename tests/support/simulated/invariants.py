"""The promises of section 6 of the design, with one checker each, over the recorded history of a schedule.

A checker returns one line per violation. L1 to Q1 know only events that are visible from outside; M1 and I1 look inside. Each
exception that the design allows is stated where it is made.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from itertools import pairwise
from math import inf

from cacheupdater.core.answers import ENDING
from cacheupdater_client.outbox import BYTES_MAX, KEYS_MAX
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH
from simulated.cache import FOREIGN
from simulated.database import is_of, superseded_at
from simulated.served import BLINK, Served

KIND = ("touch", "miss", "change")
SPARING = {"paused", "quarantined"}  # reasons of drops that spare what the application itself has set
DROPPED = "dropped"


def check(world, *, idle):
    """All checkers."""
    served = Served(world.seen, world.plan)
    return [
        *died(world.seen),
        *h1_hand_over_says_what_is_finished(world.seen),
        *o1_each_pack_once_and_in_order(world.seen),
        *i1_every_key_ends_idle(world, idle=idle),
        *(l1_no_hint_is_lost(world.seen, served) if idle else ()),
        *l2_one_head_per_key_and_owner(world.seen, world.plan),
        *s1_nothing_older_than_an_invalidation(world.seen),
        *(s2_at_rest_empty_or_equal(world) if idle else ()),
        *s3_deletes_stay_deleted(world),
        *v1_every_value_is_its_rows(world.seen),
        *a1_a_reply_is_read_as_what_it_says(world.seen),
        *w1_foreign_values_stay(world),
        *f1_no_value_is_older_than_ttl_and_fail_safe(world.seen, world.plan),
        *f2_what_is_read_lives_on(world),
        *f3_no_changed_value_lives_on(world.seen, served),
        *r1_what_was_learned_survives(world.seen),
        *k1_done_passes_only_what_is_finished(world.seen, served),
        *k1_feeds_confirm_only_what_is_safe(world, served),
        *q1_budget_hold_and_gap(world.seen, world.plan),
        *world.seen.over_caps,
    ]


def died(seen):
    """No updater ends by an error of its own."""
    return [f"died: {name} at {at:.4f}: {why}" for at, name, why in seen.died]


# --- L1 -------------------------------------------------------------------------------------------------


def l1_no_hint_is_lost(seen, served):
    """Every accepted hint is served in the end."""
    return [
        f"L1: {KIND[hint.kind]} of {key!r} queued at {hint.at:.4f} (offset {hint.offset} of {hint.partition})"
        " led to nothing"
        for hint in seen.hints
        for key in served.unserved(hint)
    ]


# --- L2 -------------------------------------------------------------------------------------------------


def l2_one_head_per_key_and_owner(seen, plan):
    """No owner has two refreshes of a key at a time. An evicted head may still be on its way."""
    violations = []
    for (owner, key), flights in _starts(seen).items():
        for first, second in pairwise(flights):
            until = min(first.ended, first.began + plan.limits.head_timeout)
            if second.began < until - BLINK:
                violations.append(
                    f"L2: {owner} refreshes {key!r} at {second.began:.4f}, and since {first.began:.4f}"
                )
    return violations


def _starts(seen):
    """The refreshes of each key by each owner. The keys of a refresh whose token failed are unknown."""
    starts = defaultdict(list)
    for flight in seen.flights:
        for key in flight.keys:
            starts[flight.owner, key].append(flight)
    return starts


# --- S1, S2, S3 -----------------------------------------------------------------------------------------


def _is_excepted(event, loss, lag):
    """After a data loss of Redis, a value that was read from the database before the loss finds no floor."""
    return event.begun - lag <= loss <= event.at


def s1_nothing_older_than_an_invalidation(seen):
    """No value is written that had been replaced in the database before the last acknowledged invalidation.

    Exceptions: data loss of Redis, and writers without a fence (a plain DEL is not an acknowledged invalidation).
    """
    violations = []
    bounds, losses = defaultdict(lambda: -inf), defaultdict(lambda: -inf)
    for event in seen.cache:
        key = event.key
        if event.what == "loss":
            losses[key] = event.at
        if _is_known(seen, event) and not _is_excepted(event, losses[key], seen.lag):
            gone = superseded_at(seen.rows[key], event.version)
            if gone <= bounds[key]:
                violations.append(
                    f"S1: {event.what} of {key!r} at {event.at:.4f} set version {event.version}, replaced at"
                    f" {gone:.4f}, invalidated at {bounds[key]:.4f}"
                )
        if event.acked:
            bounds[key] = max(bounds[key], event.covers)
    return violations


def _is_known(seen, event):
    """Whether the written version was ever the row's. If not, V1 reports it."""
    return event.version is not None and is_of(seen.rows[event.key], event.version)


def s2_at_rest_empty_or_equal(world):
    """The cache is empty or equals the database. For an unannounced change this holds from the next refresh on.

    If there is a feed, every change counts as announced.
    """
    seen, violations = world.seen, []
    losses, last = {}, {}
    for event in seen.cache:
        if event.what == "loss":
            losses[event.key] = event.at
        elif event.version is not None:
            last[event.key] = (event, losses.get(event.key, -inf))
    for key in world.keys:
        commits = seen.rows[key]
        value = world.cache.server.get(key)
        if not commits or value is None or value.startswith(FOREIGN) or int(value) == commits[-1].version:
            continue
        if _is_excepted(*last[key], seen.lag):
            continue
        if (
            (world.fed is not None and commits[-1].at >= world.fed.began)
            or is_announced(world, key, commits[-1].at)
            or _is_refreshed(seen, key, commits[-1].at + world.plan.lag)
        ):
            violations.append(
                f"S2: {key!r} holds {value!r} at rest, the database {commits[-1].version} since"
                f" {commits[-1].at:.4f}"
            )
    return violations


def is_announced(world, key, at):
    """Whether an acknowledged invalidation or write_through, or an accepted hint, has announced a change.

    A hint alone is not enough if loads read a replica, for it has no hold-off. Nor is a hint that vanished from the queue, nor
    one of a command that set the value, if it was dropped for a pause or a quarantine: such a value stays until the next load.
    """
    if any(change.key == key and change.covers >= at for change in world.changes):
        return True
    return not world.plan.lag and any(
        hint.kind == CHANGE
        and hint.at >= at
        and key in hint.keys
        and not any(expired.covers(hint) for expired in world.seen.expired)
        and not (hint.is_set and _is_spared(world.seen, hint, key))
        for hint in world.seen.hints
    )


def _is_spared(seen, hint, key):
    return any(d.key == key and d.at >= hint.at and d.reason in SPARING for d in seen.drops)


def _is_refreshed(seen, key, at):
    return any(f.began >= at and f.is_finished(key) for f in seen.flights)


def s3_deletes_stay_deleted(world):
    """No value comes back after the announcement of a delete, or, with a hint alone, after the refresh that saw it."""
    seen, violations = world.seen, []
    for key in world.keys:
        for number, commit in enumerate(seen.rows[key]):
            if commit.version is not None or number == 0:
                continue
            again = next((c.at for c in seen.rows[key][number:] if c.version is not None), inf)
            gone = _gone_for_good(world, key, commit.at)
            losses = [e.at for e in seen.cache if e.what == "loss" and e.key == key]
            violations += [
                f"S3: {key!r}, deleted at {commit.at:.4f} and announced by {gone:.4f}, came back at {e.at:.4f}"
                for e in seen.cache
                if e.key == key and e.version is not None and gone < e.at < again
                if not any(_is_excepted(e, loss, seen.lag) for loss in losses)
            ]
    return violations


def _gone_for_good(world, key, at):
    fenced = [c.fenced for c in world.changes if c.key == key and c.at == at]
    seen = [f.finished(key) for f in world.seen.flights if f.token_at >= at + world.plan.lag]
    return min([*fenced, *seen], default=inf)


# --- V1, A1, W1, R1 --------------------------------------------------------------------------------------


def v1_every_value_is_its_rows(seen):
    """Every value written for a key was once in a row of this key."""
    return [
        f"V1: {event.what} of {event.key!r} at {event.at:.4f} set version {event.version}, which its row never had"
        for event in seen.cache
        if event.version is not None and not is_of(seen.rows[event.key], event.version)
    ]


def a1_a_reply_is_read_as_what_it_says(seen):
    """The answer that an updater gets for a key is what Redis has done with the key."""
    return [
        f"A1: {flight.owner} read {said} for {key!r} at {flight.ended:.4f}, Redis had said {flight.landed[key][1]}"
        for flight in seen.flights
        for key, said in flight.answers.items()
        if key in flight.landed and flight.landed[key][1] is not said
    ]


def w1_foreign_values_stay(world):
    """Only applications replace or remove a foreign value.

    With `replace` in the configuration, each refresh that finishes does so too.
    """
    if not world.plan.replace:
        return [
            f"W1: {each.process} did away with the foreign value of {each.key!r} at {each.at:.4f}"
            for each in world.seen.foreign_gone
        ]
    last = {event.key: event.at for event in world.seen.cache if event.what == "foreign"}
    return [
        f"W1: {key!r} holds a foreign value since {at:.4f}, and was refreshed since"
        for key, at in last.items()
        if (world.cache.server.get(key) or b"").startswith(FOREIGN)
        and any(at < flight.finished(key) < inf for flight in world.seen.flights)
    ]


# --- F1, F2, F3 ------------------------------------------------------------------------------------------

LATE_S = (
    0.35  # from a read until its value has more time: hints leave every 0.1 s, and an updater takes turns
)
KNOWN_S = 0.6  # from the beginning of an outage until two loads have failed


def f1_no_value_is_older_than_ttl_and_fail_safe(seen, plan):
    """No reader finds a loaded value that was written longer than `ttl` ago and is older than `ttl` and `fail_safe` together.

    A load may take longer than `fail_safe`, and its write may wait in a Redis that stands still. Such a value has its `ttl`.
    """
    violations, written = [], _latest(seen)
    for read in seen.reads:
        event = written(read.key, read.at)
        if not read.found or event is None or event.what != "write":
            continue
        if read.at > max(event.at, event.begun + plan.fail_safe) + plan.ttl + BLINK:
            violations.append(
                f"F1: {read.key!r} was read at {read.at:.4f}, and its load began at {event.begun:.4f}"
            )
    return violations


def _latest(seen):
    """The last change of a key in Redis, by time."""
    events = defaultdict(list)
    for event in seen.cache:
        events[event.key].append(event)

    def latest(key, at):
        found = events[key]
        number = bisect_right(found, at, key=lambda event: event.at)
        return found[number - 1] if number else None

    return latest


def f2_what_is_read_lives_on(world):
    """While nothing fails but the database, a value that is read once in a ttl does not expire before it is as old as it may get.

    A value is left out if its row was changed since a ttl before the outage.
    """
    seen, plan = world.seen, world.plan
    if not plan.away:
        return []
    violations, written = [], _latest(seen)
    for began, ended in seen.outages:
        changed = {change.key for change in world.changes if began - plan.ttl <= change.at <= ended}
        for key in sorted(set(world.keys) - changed):
            reads = [r for r in seen.reads if r.key == key and began + KNOWN_S <= r.at <= ended]
            for read, gone in _lost(reads, plan.ttl - LATE_S):
                event = written(key, gone)
                if event is not None and gone - event.begun < plan.ttl + plan.fail_safe - LATE_S:
                    violations.append(f"F2: {key!r} was read at {read:.4f}, and had expired at {gone:.4f}")
    return violations


def _lost(reads, within):
    """(when it was read, when it was gone): values that were there long enough to be given more time, and then were not."""
    for number, first in enumerate(reads):
        later = [read for read in reads[number + 1 :] if read.at <= first.at + within]
        gone = next((read.at for read in later if not read.found), None)
        if first.found and gone is not None and any(r.found and r.at >= first.at + LATE_S for r in later):
            yield first.at, gone


def f3_no_changed_value_lives_on(seen, served):
    """No updater gives more time to a value whose change it has taken in and not served."""
    changes = defaultdict(list)
    for intake in seen.intakes:
        if intake.hint.kind == CHANGE:
            for key in intake.hint.keys:
                changes[intake.owner, key].append(intake)
    return [
        f"F3: {each.owner} gave more time to {each.key!r} at {each.at:.4f}, whose change it had read at {intake.at:.4f}"
        for each in seen.prolonged
        for intake in changes[each.owner, each.key]
        if intake.at < each.sent and each.key in served.unserved(intake.hint, each.sent)
    ]


def r1_what_was_learned_survives(seen):
    """A process that begins with a file knows the price and the keys in it."""
    return [
        f"R1: {each.process} knew {each.known} at {each.at:.4f}, its file held {each.saved}"
        for each in seen.restarts
        if each.known != each.saved
    ]


# --- K1 -------------------------------------------------------------------------------------------------


def k1_done_passes_only_what_is_finished(seen, served):
    """At every commit, all hints before `done` were served by then. Within an epoch `done` never moves back.

    A commit of an ownership does not count after the partition has been granted to another owner. Exception: an owner that
    has handed over to its own process, by a commit that was under way. That process reads the packs again.
    A hint need not be finished if an owner has put it back: then `done` must not pass the later pack.
    """
    violations, passed, last = [], defaultdict(int), {}
    owed = defaultdict(
        list
    )  # by place: the hints for which its pack stands, each with the keys that are meant
    for hint in seen.hints:
        owed[hint.topic, hint.partition, hint.offset].append((hint, hint.keys))
    for commit in seen.commits:
        if not commit.accepted:
            continue
        place = commit.topic, commit.owner.partition
        if commit.holder not in {None, commit.owner} and not _is_handed_back(commit, seen):
            violations.append(f"K1: {commit.owner} committed at {commit.at:.4f}, it is {commit.holder}'s")
        if commit.done < last.get(commit.owner, 0):
            violations.append(f"K1: {commit.owner} moved done back to {commit.done} at {commit.at:.4f}")
        last[commit.owner] = commit.done
        for offset in range(passed[place], commit.done):
            for hint, keys in owed.pop((*place, offset), ()):
                for key in set(keys).intersection(served.unserved(hint, commit.at)):
                    later = _put_back(seen, hint, key, commit)
                    if later is None:
                        violations.append(
                            f"K1: {commit.owner} committed {commit.done} at {commit.at:.4f}, and offset {offset}"
                            f" ({KIND[hint.kind]} of {key!r}) was not finished"
                        )
                    else:
                        owed[*place, later.offset].append((hint, (key,)))
        passed[place] = max(passed[place], commit.done)
    return violations


def k1_feeds_confirm_only_what_is_safe(world, served):
    """A reader confirms a log only up to changes that outlive it: on the queue, or, if that dies with it, served.

    Keys that a statement must find are left out once a statement was given up: then all keys that are in Redis count as
    changed, and S2 judges what came of that.
    """
    if world.fed is None:
        return []
    queued = defaultdict(list)
    for hint in world.seen.hints:
        for key in hint.keys if hint.kind == CHANGE else ():
            queued[key].append(hint.at)

    def is_safe(key, since, by):
        if world.plan.fed.memory:
            return served.is_changed(key, since, by)
        times = queued[key]
        number = bisect_left(times, since)
        return number < len(times) and times[number] <= by

    violations = []
    for number, (told, confirmed) in enumerate(zip(world.fed.told, world.fed.confirmed, strict=True)):
        waiting = deque(told)
        for each in confirmed:
            while waiting and waiting[0].position <= each.position:
                commit = waiting.popleft()
                keys = commit.keys if world.fed.gave_up else (*commit.keys, *commit.found)
                violations += [
                    f"K1: {each.process} confirmed log {number} up to {each.position} at {each.at:.4f}, and the"
                    f" change of {key!r} at {commit.at:.4f} was not safe"
                    for key in keys
                    if each.process and not is_safe(key, commit.at, each.at)
                ]
    return violations


def _put_back(seen, hint, key, commit):
    """The last pack by which this key of the hint was put back, if `done` has not passed it; None if there is none."""
    where = hint.topic, hint.partition
    return max(
        (
            each
            for each in seen.put_back
            if (each.topic, each.partition) == where
            and key in each.keys
            and each.kind >= hint.kind
            and commit.done <= each.offset
            and each.at <= commit.at
        ),
        key=lambda each: each.offset,
        default=None,
    )


def _is_handed_back(commit, seen):
    return commit.owner.process in seen.reloaded and commit.holder.process == commit.owner.process


def h1_hand_over_says_what_is_finished(seen):
    """Before an owner says that it is ready to hand over, it has asked the queue to commit all that was finished."""
    return [
        f"H1: {each.owner} was ready at {each.at:.4f} and had finished {each.done}, but committed {each.said}"
        for each in seen.hand_overs
        if each.said < each.done
    ]


# --- O1 -------------------------------------------------------------------------------------------------


def o1_each_pack_once_and_in_order(seen):
    """An owner fetches only packs after those that it has fetched. Packs read for an older epoch are not for it."""
    violations, last = [], {}
    for intake in seen.intakes:
        place = intake.hint.topic, intake.hint.offset
        if place <= last.get(intake.owner, (0, -1)):
            violations.append(
                f"O1: {intake.owner} fetched offset {place[1]} at {intake.at:.4f}, after {last[intake.owner][1]}"
            )
        last[intake.owner] = place
    return violations


# --- Q1 -------------------------------------------------------------------------------------------------


def q1_budget_hold_and_gap(seen, plan):
    """Rows stay within budget and quota, per process and for all processes together.

    Per owner, two starts of a key are at least a gap apart; for touches alone, a hold.
    """
    return [*_within_rates(seen, plan), *_group_within_rates(seen, plan), *_spaced(seen, plan)]


def _within_rates(seen, plan):
    violations = []
    for process, started in seen.starts_of_processes.items():
        flights = [f for f in seen.flights if f.owner.process == process and f.keys]
        for name, rate, burst in _rates(plan):
            mine = [f for f in flights if name == "budget" or f.keys[0][:1] == b"b"]
            saved = _saved(plan, burst)
            if rate and (at := overspent(mine, rate, burst, since=started, saved=saved)) is not None:
                violations.append(f"Q1: {process} has spent more than its {name} of {rate}/s at {at:.4f}")
    return violations


def _group_within_rates(seen, plan):
    """For all owners together: the parts of each rate that go with the partitions never exceed the whole.

    Exceptions: an owner that was thrown out of the group and has not heard of it. Until then there are two owners. And memory
    queues, for each of their processes has the whole rate.
    """
    violations = []
    if plan.fed and plan.fed.memory:
        return violations
    for name, rate, burst in _rates(plan):
        shared = plan.fleet and name == "budget"  # by a record that includes lost owners too
        flights = [f for f in seen.flights if f.keys and (shared or not f.lost)]
        mine = [f for f in flights if name == "budget" or f.keys[0][:1] == b"b"]
        if rate and (at := overspent(mine, rate, burst, since=0.0, saved=_saved(plan, burst))) is not None:
            violations.append(f"Q1: the group has spent more than its {name} of {rate}/s at {at:.4f}")
    return violations


def _saved(plan, burst):
    """What may be there at the beginning. In a crowd an owner spends in turns, and its first turn may be open at once."""
    return burst if plan.crowded else 0.0


def _rates(plan):
    """The rates: name, rows a second, and the burst."""
    return ("budget", plan.budget, plan.burst), ("quota", plan.quota, plan.quota)


def overspent(flights, rate, burst, *, since, saved=0.0):
    """When a bucket could not have paid the statements that leave; None if it could always pay.

    It always could if no window of any length has more rows than `rate` times its length, and the burst.
    """
    level, last = saved, since
    for flight in sorted(flights, key=lambda f: f.left):
        level = min(max(burst, 1.0), level + (flight.left - last) * rate) - len(flight.keys)
        last = flight.left
        if level < -BLINK * rate:
            return flight.left
    return None


def _spaced(seen, plan):
    violations, heard = [], _heard(seen)
    for (owner, key), flights in _starts(seen).items():
        befores = [-inf, *(flight.began for flight in flights)]
        for before, (first, second) in zip(befores, pairwise(flights), strict=False):
            in_time = first.ended < first.began + plan.limits.head_timeout
            if not (in_time and first.answers.get(key) in ENDING):
                continue  # failure and eviction are exceptions
            least = _least(plan, key, heard[owner, key], (before, first.began, second.began))
            if second.began < first.began + least - BLINK:
                violations.append(
                    f"Q1: {owner} refreshed {key!r} at {first.began:.4f} and {second.began:.4f}, less than"
                    f" {least} apart"
                )
    return violations


def _heard(seen):
    """When each owner heard of misses and of changes of each key, and when it gave up hints of the key.

    It passes over the packs that it has put back itself.
    """
    heard = defaultdict(lambda: {MISS: [], CHANGE: [], DROPPED: []})
    for intake in seen.intakes:
        if intake.hint.kind != TOUCH and seen.put_back.get(intake.hint) != intake.owner:
            for key in intake.hint.keys:
                heard[intake.owner, key][intake.hint.kind].append(seen.taken_in(intake))
    for drop in seen.drops:
        heard[drop.owner, drop.key][DROPPED].append(drop.at)
    return heard


def _least(plan, key, heard, starts):
    """The least time between the last two of these starts: for a change only after a start for a change."""
    before, first, second = starts
    if any(first - BLINK <= at <= second for at in heard[CHANGE]):
        given_up = max((at for at in heard[DROPPED] if at <= first + BLINK), default=-inf)
        for_a_change = any(max(before, given_up) < at < first - BLINK for at in heard[CHANGE])
        return plan.limits.gap if for_a_change else 0.0
    missed = any(first - BLINK <= at <= second for at in heard[MISS])
    return plan.limits.gap if missed else max(plan.hold(key), plan.limits.gap)


# --- M1 and I1, which look inside -----------------------------------------------------------------------


def over_caps(world):
    """M1: no table, buffer or ring is beyond its cap."""
    limits, violations = world.plan.limits, []

    def cap(name, size, most):
        if size > most:
            violations.append(f"M1: {name} holds {size}, its cap is {most}")

    known = len(world.keys)
    for updater in world.updaters:
        for engine in updater.engines:
            dedup = engine._dedup
            cap("seats", engine.tracked, known)
            cap("tails", len(dedup.tails), dedup.running_keys)
            cap("absent marks", len(engine._marks), limits.absent)
            cap("quarantine", len(engine.quarantine), limits.quarantined)
            cap("troubles", len(engine._troubles), known)
            for backlog in dedup.schedule._backlogs.values():
                cap("backlog", backlog.waiting, backlog.namespace.max_backlog)
    for application in world.applications:
        outbox = application.client.outbox
        cap("outbox keys", outbox._keys, KEYS_MAX)
        cap("outbox bytes", outbox._bytes, BYTES_MAX)
    return violations


def reads_on(pending, most):
    """M1, when a partition fetches: this one read may overshoot the cap."""
    return [f"M1: reads on with {pending} pending, the cap is {most}"] if pending >= most else []


def i1_every_key_ends_idle(world, *, idle):
    """No state is left of any key, and every permit has been given back."""
    violations = []
    if not idle:
        broker = world.broker
        engines = [
            (u.process.name, u.source.slots.free, e.pending, e.tracked)
            for u in world.updaters
            for e in u.engines
        ]
        logs = list(zip(broker.done, map(len, broker.logs), strict=True))
        violations.append(f"I1: not idle: done of {logs}; (updater, permits, pending, tracked): {engines}")
    for updater in world.updaters:
        for engine in updater.engines if idle else ():
            dedup = engine._dedup
            left = {
                "tails": len(dedup.tails),
                "running": len(dedup._running),
                "waiting": dedup.schedule.waiting,
                "late": dedup._late,
                "troubles": len(engine._troubles),
                "unseen keys set apart": sum(
                    each.namespace.absent_bucket._apart for each in dedup.schedule._backlogs.values()
                ),
            }
            violations += [f"I1: {updater.process.name} keeps {n} {what}" for what, n in left.items() if n]
    return violations
