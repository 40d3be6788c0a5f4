"""What happens in one schedule of members that share a depot: drawn from a seed, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

SESSION = 2.0  # s
LENGTH = 3 * SESSION  # of the time with faults
FAULTS = (
    "stop",  # a process stands still, as by SIGSTOP
    "kill",
    "leave",
    "join",
    "cut",  # nothing passes between a member and the depot
    "deaf",  # calls arrive, and their answers do not
    "unrenewed",  # renewals are lost, and nothing else
    "slow",  # many calls and answers take up to a session and a half
    "late",  # many commits are carried out when their sender has given up
    "step",  # somebody sets a member's wall clock, and its renewals are lost for as long
    "jump",  # somebody sets the depot's clock: sessions end early, or late
    "forced",  # a person frees a partition at the depot
)


class Fault(NamedTuple):
    """One event of a schedule."""

    at: float
    kind: str
    member: int  # which of those that live then
    seconds: float  # how long it lasts; of a clock, how far it is set


@dataclass(frozen=True)
class Plan:
    """One schedule."""

    seed: int
    partitions: int
    members: int
    rates: tuple[float, ...]  # of the members' monotonic clocks, by turns; 1.0 is honest
    faults: tuple[Fault, ...]
    moves: bool  # at rest, one member more joins, and leaves again

    @property
    def honest(self) -> bool:
        """Whether clocks run as clocks do: then a member never believes for longer than the depot does."""
        return set(self.rates) == {1.0} and not any(each.kind in {"jump", "forced"} for each in self.faults)


def draw(seed: int) -> Plan:
    """The schedule of this seed."""
    random = Random(seed)
    struck = random.choice((None, 0))  # in half of the schedules, all strikes hit the same member
    faults = [_fault(random, struck) for _ in range(random.randint(1, 5))]
    dishonest = random.random() < 0.2
    rates = tuple(random.uniform(0.7, 1.4) if dishonest else 1.0 for _ in range(4))
    return Plan(
        seed,
        partitions=random.randint(1, 5),
        members=random.randint(1, 3),
        rates=rates,
        faults=tuple(sorted(faults)),
        moves=random.random() < 0.3,
    )


def _fault(random: Random, struck: int | None) -> Fault:
    kind = random.choice(FAULTS)
    seconds = random.uniform(0.1, 2.0) * SESSION
    if kind in {"step", "jump"}:
        seconds *= random.choice((-1, 1))
    return Fault(
        random.uniform(0.0, LENGTH), kind, random.randrange(8) if struck is None else struck, seconds
    )
