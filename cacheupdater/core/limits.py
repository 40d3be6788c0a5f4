"""Every bound of the core, with its unit and reason. Built once by the service, shared by all engines.

Tests shrink them, and so does a container's memory. The core has no limit that does not stand here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

PROCESS_BYTES = 96 << 20
"""What an updater takes before its first hint: 89 MB measured, and room for one more driver."""

TABLES_PART = 0.5
"""Part of the memory beyond that, for tables that may forget. The rest is for hints under way, rows and Redis' commands."""

LEARNED_BYTES, ABSENT_BYTES, STRANGER_BYTES, CLAIM_BYTES, SEEN_BYTES = 200, 250, 130, 130, 40
"""Per entry, a key of some 14 bytes included: 153 to 200, 245, 128, 123 and 36 measured. Of a seen key there is a number only."""

LEAST_PART = 0.01
"""Part of the usual tables that stays, however small the memory: smaller ones would forget a key before its next read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """All bounds, with their defaults."""

    gap: float = 0.1
    """Least seconds from a key's last start to a start for a read, and between its starts for two changes."""

    head_timeout: float = 3.0
    """Seconds after which a running head is evicted; above a statement's 1.2 s and two Redis calls of 0.5 s."""

    unit_keys: int = 200
    """Keys per unit: 500 gains no speed over 200, and a unit is what one failure can hold up."""

    gather: float = 0.02
    """Seconds between two partial units of one namespace while no miss and no change waits, so that many small packs share
    a statement."""

    pace: float = 0.1
    """Seconds of a rate that a short bucket saves up before it starts a unit: ten statements a second at most."""

    max_attempts: int = 5
    """Errors of its own before a key is quarantined."""

    backoff: float = 0.1
    """Seconds of the first delay after an error; doubles up to `backoff_max`."""

    backoff_max: float = 2.0
    """Seconds: a source that comes back is used again within this."""

    backlog_age: float = 30.0
    """Seconds that a hint may wait; then it is dropped with a count, so that no key pins the cursor for longer."""

    put_back_after: float = 5.0
    """Seconds after which open hints are put back on their queue: those that nothing delays are long served."""

    put_back_keys: int = 1_000
    """Such hints per partition: more are no long tail but a source that is down, and it would help nobody to write them anew."""

    put_back_behind: int = 16
    """Packs read since the oldest open one: to read fewer of them again costs less than to write any anew."""

    pending: int = 100_000
    """Live heads, tails and invalidations per partition at which reading pauses."""

    removals: int = 10_000
    """Keys per partition that wait for the rate of removals: 20 s of a budget of 500 rows/s, and 10 MiB of the longest keys."""

    senders_wait: bool = True
    """Whether a pause of reading makes the senders wait. Those of a topic do not: a pause would only delay everybody's hints."""

    quarantined: int = 1_000
    """Keys in quarantine per partition; the oldest is let go first."""

    quarantine_for: float = 60.0
    """Seconds until the next hint of a quarantined key is tried again."""

    absent: int = 100_000
    """Absent marks per partition: what random absent keys can cost in memory."""

    claims: int = 50_000
    """Keys per partition whose readers have filled them lately: some six megabytes. Beyond it, a fill is a touch."""

    seen: int = 38_000
    """Keys per partition whose rows are known to exist, beside those with a seat. Half of them lie in a set. With up to
    19,660 keys the set takes half a megabyte, and with more keys four times as much."""

    strangers: int = 50_000
    """Keys of nobody that a partition remembers: some five megabytes."""

    prolonged: int = 100_000
    """Keys per partition that get more time while their source fails: as many as may be pending, and some fifteen megabytes,
    which are free again after the outage."""

    turn_keys: int = 2_000
    """Keys that one step drops or removes, and absent marks that one call forgets: some milliseconds in which nothing
    else runs. The next step or call takes the rest."""

    turn_seats: int = 20_000
    """The same for seats whose hold is over. Each costs a tenth; at a million hints a second, a turn ends half as many."""

    learned: int = 1_000_000
    """Keys per partition that the policy `price` learns about: some 200 bytes each."""

    prune: float = 1.0
    """Seconds between two looks for hints that have waited too long."""

    @property
    def tables(self) -> int:
        """Bytes of one partition's tables when they are full."""
        known = self.learned * LEARNED_BYTES + self.absent * ABSENT_BYTES
        known += self.seen * SEEN_BYTES
        return known + self.strangers * STRANGER_BYTES + self.claims * CLAIM_BYTES

    def within(self, memory: int | None, *, partitions: int, processes: int = 1) -> Limits:
        """These limits with tables that fit into so many bytes, even if our processes own all partitions."""
        if memory is None:
            return self
        room = max(0.0, memory - processes * PROCESS_BYTES) * TABLES_PART
        part = max(LEAST_PART, room / (partitions * self.tables))
        if part >= 1.0:
            return self
        return replace(
            self,
            learned=int(self.learned * part),
            absent=int(self.absent * part),
            seen=int(self.seen * part),
            strangers=int(self.strangers * part),
            claims=int(self.claims * part),
        )
