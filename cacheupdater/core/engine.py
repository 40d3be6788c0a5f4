"""One partition's decisions: the shell reports what happened, and the engine answers what to do.

The partition's shell calls it with `now` on every occasion: hints were read, a unit's writes were answered, a unit failed,
an invalidation was acknowledged. It calls `step` whenever something may be due. The engine never awaits, so each call is
atomic. It lives from the gain of a partition to its hand-over, and is then forgotten as a whole.

Its parts decide what to do and when: `dedup` (the automaton), `seating` (new heads), `schedule` (order and pace), `cursors`
(what may be committed), `outcomes` (what becomes of a unit that has run), `removals` (changes that could not be served),
`absent` (rows that are not there), `prolonging` (old values that live on), `pausing` (what an operator paused).
"""

from __future__ import annotations

from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.absent import AbsentMarks
from cacheupdater.core.automaton import Action
from cacheupdater.core.cursors import Cursor, OpenPack
from cacheupdater.core.dedup import Dedup
from cacheupdater.core.drops import Drops
from cacheupdater.core.explain import Explained, seat_of
from cacheupdater.core.fed import Fed, is_fed
from cacheupdater.core.fills import Fills
from cacheupdater.core.heard import count_hints
from cacheupdater.core.hints import Hints, Kind
from cacheupdater.core.metrics import Tally
from cacheupdater.core.outcomes import Failure, Load, Outcomes
from cacheupdater.core.pausing import Pausing
from cacheupdater.core.peers import NOBODY, Peers
from cacheupdater.core.prolonging import Prolonging
from cacheupdater.core.putting_back import PuttingBack
from cacheupdater.core.removals import Removals
from cacheupdater.core.retry import Troubles
from cacheupdater.core.seating import Seating
from cacheupdater.core.seen import without_made_up
from cacheupdater.core.starting import Starting
from cacheupdater.core.strangers import Strangers
from cacheupdater.core.unit import PATIENT, URGENCY, Demand, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cacheupdater.core.answers import Answer
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.policy import Policy
    from cacheupdater.core.prolonging import Prolongation
    from cacheupdater.core.redis_clock import RedisClock
    from cacheupdater.core.removals import Invalidation
    from cacheupdater.core.unit import Unit


class Work(NamedTuple):
    """What the shell shall do now, and when to ask again if nothing happens before."""

    units: list[Unit]
    invalidation: Invalidation | None
    prolongation: Prolongation | None
    wake: float


UNSEEN = Load()
_ONCE: Mapping[bytes, int] = MappingProxyType({})


class Engine:
    """Everything that one partition decides."""

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        policy: Policy,
        *,
        limits: Limits,
        random: Callable[[], float],
        offset: int,
        clock: RedisClock | None = None,
    ) -> None:
        """`clock` says when tokens were taken; while it does not know Redis' time, fills are touches."""
        self.cursor = Cursor(offset)
        self.tally = Tally()
        self.awaited: set[Namespace] = set()  # readers have waited for misses of these
        self._keyspace = keyspace
        self._policy = policy
        self._limits = limits
        self._marks = AbsentMarks(limits.absent, turn=limits.turn_keys)
        self._peers = Peers(limits)
        self._dedup = Dedup(limits, self._marks, namespaces=len(keyspace.values))
        self._strangers = Strangers(limits.strangers)
        self._fills = Fills(
            clock, limits, keyspace=keyspace, dedup=self._dedup, policy=policy, tally=self.tally
        )
        self._removals = Removals(limits, self.tally, policy=policy)
        self._starting = Starting(
            self._dedup, policy, strangers=self._strangers, limits=limits, tally=self.tally
        )
        self._prolonging = Prolonging(
            keyspace, self._dedup, removals=self._removals, limits=limits, tally=self.tally
        )
        self._seating = Seating(
            keyspace, self._dedup, policy=policy, strangers=self._strangers, tally=self.tally, limits=limits
        )
        self._pausing = Pausing(keyspace, self._dedup, policy=policy, tally=self.tally)
        self._drops = Drops(
            keyspace, self._strangers, removals=self._removals, prolonging=self._prolonging, tally=self.tally
        )
        self._fed = Fed(keyspace, self._dedup, policy=policy, drops=self._drops, tally=self.tally)
        self._troubles = Troubles(limits, random)
        self.quarantine = self._troubles.quarantine
        self._outcomes = Outcomes(
            self._dedup,
            self._marks,
            policy=policy,
            troubles=self._troubles,
            removals=self._removals,
            tally=self.tally,
        )
        self.putting_back = PuttingBack(self.cursor, self._dedup, self._removals, limits)
        self.slow_keys = self._dedup.slow_keys
        self.on_absent = self._outcomes.on_absent  # called for each unit once its rows are loaded
        self.suspects = self._outcomes.suspects  # keys of which `braked` must know whether they have a value
        self._pruned = -inf

    # --- what can be asked ------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Live heads, tails and invalidations."""
        dedup = self._dedup
        return dedup.schedule.waiting + dedup.running_keys + len(dedup.tails) + self._removals.open

    @property
    def full(self) -> bool:
        """Whether reading pauses until some of it is done."""
        return self.pending >= self._limits.pending or self._removals.full

    @property
    def held(self) -> Collection[int]:
        """The peers whose packs are not read for now: their open hints leave others too little room."""
        return self._peers.held(self.pending, self._removals.waiting)

    @property
    def removals_waiting(self) -> int:
        """Keys that will be removed because a change was dropped, once their rate allows it."""
        return self._removals.waiting

    @property
    def tracked(self) -> int:
        """Keys that take memory."""
        return len(self._dedup.seats)

    @property
    def effort(self) -> int:
        """What hints have cost beyond their bytes: 1 for each key that is new to the policy, `GROUP` for each group of keys."""
        return self._policy.met + self._seating.effort

    def explain(self, key: bytes, now: float) -> Explained:
        """What is known of this key, for a person."""
        return Explained(seat_of(self._dedup, key, now), self.quarantine.keys.get(key), key in self._marks)

    # --- what happens -----------------------------------------------------------------------------------

    def on_hints(self, batch: Iterable[Hints], now: float) -> None:
        """Packs were read, in the order of their offsets."""
        self._advance(now)
        for pack in batch:
            self._account_for_drops()  # strangers that are found among the drops are known from now on
            open_pack = self.cursor.read(pack.offset, now, self._peers.of(pack.peer, pack.clients))
            count_hints(pack, self._keyspace, self.tally)
            # strangers leave before the policy learns of them, or it would hold them back uncounted
            hints, nobodys = self._strangers.without(pack) if self._strangers else (pack, 0)
            self.tally.add("dropped", nobodys, reason="unknown")
            if hints.tokens and hints.kind is Kind.MISS:
                self.awaited.update(self._keyspace.resolve_many(hints.keys)[0])
            if hints.tokens or hints.kind is not Kind.MISS:  # who waits has looked: Redis has lost the mark
                self._marks.end(hints.keys)
            hints = self._pausing.without_paused(hints) if self._pausing.namespaces else hints
            self._fed.lean(hints, open_pack)
            if hints.kind is Kind.TOUCH:
                self._prolonging.touched(hints.keys, now)
                if hints.tokens:
                    hints, refreshed = self._fills.take(hints, open_pack, now, barred=self.quarantine.keys)
                    self._troubles.over(refreshed)
                keys = self._policy.on_hints(hints.keys, hints.counts, now)
                self.tally.add("decisions", len(hints.keys) - len(keys), reason="policy")
                self._touches(keys, open_pack, now)
            else:
                hints = self._fed.take(hints, open_pack, now) if is_fed(hints) else hints
                self._others(hints, open_pack, now)

    def skip(self, offset: int, now: float) -> None:
        """Passes over a message that is no pack."""
        self.cursor.read(offset, now, self._peers.of(NOBODY))

    def step(self, now: float) -> Work:
        """What is due by now: evictions, drops, and the units that can be paid for."""
        self._advance(now)
        self._account_for_drops()
        asked = self._policy.tick(now)
        if asked:
            self._marks.end(asked)
            self._touches(asked, self.cursor.here(now, self._peers.of(NOBODY)), now)
        for unit in self._dedup.overdue(now):
            self.tally.add("refreshes", len(unit.keys), unit.namespace.name, reason="evicted")
            self._prolonging.failed(unit.namespace, unit.keys, now)
            self._outcomes.failed(unit, Failure("evicted", own=False, slow=True), now)
        if self._pruned + self._limits.prune <= now and self._dedup.schedule.aged.find(now):
            self._pruned = now
        units = self._starting.start(now)
        self._dedup.schedule.drop_aged()
        self._account_for_drops()
        cut_short = self._starting.cut_short or self._dedup.schedule.aged.unfinished
        prolongation = self._prolonging.take(now) if self._prolonging.needed else None
        return Work(units, self._removals.take(now), prolongation, now if cut_short else self._wake())

    def braked(
        self, unit: Unit, absent: Collection[bytes], now: float, *, valueless: Collection[bytes] = ()
    ) -> Collection[bytes] | None:
        """Of these keys without a row, those whose values stay; None while the brake is off. The brake counts every unit, so
        the shell calls this for each."""
        return self._outcomes.braked(unit, absent, now, valueless=valueless)

    def take_ages(self) -> list[tuple[str, float]]:
        """Since the last call: (namespace, seconds from a hint to its written value)."""
        ages, self._outcomes.ages = self._outcomes.ages, []
        return ages

    def on_statement(self, unit: Unit, now: float) -> bool:
        """The unit's statement leaves for the database now. False: it must not, for its budget is not ours any more."""
        return unit.receipt.leave(now)

    def on_answers(
        self,
        unit: Unit,
        answers: Sequence[Answer],
        now: float,
        *,
        absent: Collection[bytes] = (),
        load: Load = UNSEEN,
    ) -> None:
        """The unit's writes were answered, in the order of its keys; `absent` are those that had no row."""
        self._advance(now)
        unit.namespace.source.answered(unit, now)
        unit.namespace.source.outage.loaded(unit.namespace, unit.began)
        unit.receipt.end(now, seconds=load.seconds, rows=len(answers), answered=True)
        if unit.phase is not Phase.RUNNING:
            self.tally.add("refreshes", len(answers), unit.namespace.name, reason="late")
            return
        self._outcomes.answered(unit, answers, now, absent=absent, load=load)

    def on_unasked(self, unit: Unit, answers: Sequence[Answer], now: float) -> None:
        """The unit was answered without a load: what it has paid is given back."""
        self.on_cut_off(unit, now)
        self._advance(now)
        if unit.phase is Phase.RUNNING:
            self._outcomes.answered(unit, answers, now, absent=(), load=UNSEEN)
        else:
            self.tally.add("refreshes", len(answers), unit.namespace.name, reason="late")

    def on_cut_off(self, unit: Unit, now: float) -> None:
        """The unit's load was cut off, and nobody will report how it ended: its budget and its slot are free for others."""
        unit.receipt.cancel(now)
        unit.namespace.source.gone(unit)

    def on_failure(self, unit: Unit, failure: Failure, now: float, *, load: Load = UNSEEN) -> None:
        """The unit failed: it could not be loaded, or Redis could not be reached."""
        self._advance(now)
        source = unit.namespace.source
        if failure.own or load.stage == "write":
            source.answered(unit, now)
        elif failure.at_source:
            source.troubled(unit, unit.namespace, now, seconds=load.seconds)
        source.gone(unit)
        if failure.at_source:
            source.outage.failed(unit.namespace, own=failure.own)
            self._prolonging.failed(unit.namespace, unit.keys, now)
        elif load.stage == "write":
            source.outage.loaded(unit.namespace, unit.began)
        unit.receipt.end(now, seconds=load.seconds, asked=load.asked, rows=len(unit.captures))
        if unit.phase is Phase.RUNNING:
            self.tally.add("refreshes", len(unit.keys), unit.namespace.name, reason="error")
            self._outcomes.failed(unit, failure, now)
        else:
            self.tally.add("refreshes", 1, unit.namespace.name, reason="late")

    def on_invalidated(
        self, invalidation: Invalidation, answers: Sequence[Answer], now: float
    ) -> Sequence[bytes]:
        """Redis' answers to these removals, in their order; none if it could not be reached. Returns the keys given up."""
        if not answers:
            self._removals.unanswered(invalidation, now)
            return ()
        given_up = self._removals.answered(invalidation, answers, now)
        for namespace, keys in self._keyspace.resolve_many(given_up)[0].items():
            self.tally.add("dropped", len(keys), namespace.name, reason="removal_refused")
        return given_up

    def on_prolonged(self, prolongation: Prolongation, answers: Sequence[bool | None], now: float) -> None:
        """Redis' answers to a request for more time, in the order of its keys."""
        self._prolonging.answered(prolongation, answers, now)

    def pause(self, namespaces: Collection[Namespace], now: float) -> None:
        """These namespaces are paused from now on, and no others. The next steps drop what waits in them."""
        self._pausing.follow(namespaces, now)
        self._pruned = -inf

    def retry(self, keys: Iterable[bytes], now: float) -> int:
        """These keys leave quarantine and are due now, each alone. Returns how many were there."""
        open_pack = self.cursor.here(now, self._peers.of(NOBODY))
        demand = Demand(Kind.MISS, URGENCY[Kind.MISS], open_pack, now)
        for key in (freed := list(filter(self.quarantine.forget, keys))):
            if self._decide(key, demand, now):
                self._seating.seat([key], demand._replace(alone=True), now, asks=_ONCE)
        return len(freed)

    def hasten(self) -> None:
        """The partition is about to go, so removals do not wait for their rate any more."""
        self._removals.hasten()

    def leave(self) -> None:
        """The partition goes to another owner. The engine is not called again."""
        self._policy.leave()
        self._removals.leave()
        self._dedup.schedule.end()

    # --- hints ------------------------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        self._marks.expire(now)
        self._dedup.expire(now)

    def _touches(self, keys: Sequence[bytes], open_pack: OpenPack, now: float) -> None:
        fresh, over = self._dedup.touches(keys)
        self.tally.add("decisions", len(keys) - len(fresh) - len(over), reason=Action.HOLD.reason)
        demand = Demand(Kind.TOUCH, URGENCY[Kind.TOUCH], open_pack, now)
        fresh += [key for key in over if self._decide(key, demand, now)]
        self._accept(fresh, demand, now)

    def _others(self, hints: Hints, open_pack: OpenPack, now: float) -> None:
        asks, groups = hints.asks, {URGENCY[hints.kind]: hints.keys}
        if patient := self._tell_policy(hints, now):
            groups = {URGENCY[hints.kind]: [key for key in hints.keys if key not in patient]}
            groups[PATIENT] = [key for key in hints.keys if key in patient]
        for urgency, keys in groups.items():
            demand = Demand(hints.kind, urgency, open_pack, now, is_set=hints.is_set)
            new = self._dedup.new(keys, hints.kind, now)
            fresh = [k for k in keys if k in new or self._decide(k, demand, now, asks=asks.get(k, 1))]
            self._accept(fresh, demand, now, asks=asks)

    def _tell_policy(self, hints: Hints, now: float) -> Collection[bytes]:
        """Misses and changes are loaded whatever the policy thinks. Returns the changes that it lets wait."""
        if not self._policy.learns:
            return ()
        if hints.kind is Kind.CHANGE:
            return () if hints.tokens else self._policy.on_changes(hints.keys, now)  # a fed one: told already
        if withheld := self._dedup.schedule.withheld:
            hints = without_made_up(hints, self._dedup.seen, keyspace=self._keyspace, withheld=withheld)
        self._policy.on_misses(hints.keys, hints.counts, now)
        return ()

    def _decide(self, key: bytes, demand: Demand, now: float, *, asks: int = 1) -> bool:
        """What the automaton says; True when the key needs a seat of its own."""
        action = self._dedup.hint(key, demand, now, asks=asks)
        if action is None:
            return True
        unit = self._dedup.seats.get(key)
        self.tally.add("decisions", 1, unit.namespace.name if unit else "", reason=action.reason)
        return False

    def _accept(
        self, keys: list[bytes], demand: Demand, now: float, *, asks: Mapping[bytes, int] = _ONCE
    ) -> None:
        if self._strangers:
            keys, nobodys = self._strangers.rest(keys)
            self.tally.add("dropped", nobodys, reason="unknown")
        if not keys:
            return
        freed: list[bytes] = []
        if (quarantine := self.quarantine).keys:
            keys, freed = self._drops.outside_quarantine(keys, demand, now, quarantine=quarantine)
        self._seating.seat(keys, demand, now, asks=asks)
        for key in freed:  # alone: if such a key still fails, no other refresh fails with it
            self._seating.seat([key], demand._replace(alone=True), now, asks=asks)

    # --- ends of hints ---------------------------------------------------------------------------------

    def _account_for_drops(self) -> None:
        for dropped in self._dedup.schedule.shedding.dropped:
            self._troubles.over(dropped.keys)
            self._drops.account_for(dropped)
        self._dedup.schedule.shedding.dropped.clear()

    def _wake(self) -> float:
        waits = self._dedup.schedule.waiting > 0
        prune = self._pruned + self._limits.prune if waits else inf
        wake = min(self._dedup.wake(), prune, self._policy.wake(), self._removals.wake)
        return min(wake, self._prolonging.wake) if self._prolonging.needed else wake
