"""How the write of one key ended, in the words of the fence.

The writer adapter makes answers, and the engine reads them. They live as long as the unit that they belong to.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Result(Enum):
    """The outcome of one fenced write. The results in `ENDING` finish a head; the others make its key due again."""

    WRITTEN = "written"
    ADOPTED = "adopted"  # our first write over a value of the application: it proves nothing about a change of the row
    UNCHANGED = "unchanged"  # the same bytes were there, but for dogpile's time: ttl and floor moved
    DUPLICATE = "duplicate"  # this very token had written already
    REFUSED = "refused"  # something newer happened since the token was taken
    TOO_OLD = "too_old"  # the load took longer than load_age, or the token is ahead of Redis' clock
    FOREIGN = (
        "foreign"  # left alone: the application wrote the value, and it reads as another form or has no row
    )
    SPARED = "spared"  # not removed: no load of ours has written the value, so it is the application's
    UNDECIDED = "undecided"  # not known yet whose values the namespace holds: tried again after `wait`
    FAILED = "failed"  # Redis refused this one key, or its value could not be encoded
    UNAVAILABLE = "unavailable"  # the server of this one key cannot take it now; others could take theirs
    BRAKED = "braked"  # a suspicious mass deletion: nothing was written


FINISHING = frozenset({Result.WRITTEN, Result.ADOPTED, Result.UNCHANGED, Result.DUPLICATE})
"""The value is in Redis."""

ENDING = FINISHING | {Result.BRAKED, Result.FOREIGN}
"""The head is over, with or without a write: nobody's fault, and nothing to try again."""


class Answer(NamedTuple):
    """`wait` is in seconds. For a refused write: from its token until the floor has passed. For an undecided one: from now."""

    result: Result
    wait: float = 0.0
    why: str = ""


WRITTEN = Answer(Result.WRITTEN)
ADOPTED = Answer(Result.ADOPTED)
UNCHANGED = Answer(Result.UNCHANGED)
DUPLICATE = Answer(Result.DUPLICATE)
UNSOUND = Answer(Result.WRITTEN, why="what stood in its floor's place was no floor")
TOO_OLD = Answer(Result.TOO_OLD)
FOREIGN = Answer(Result.FOREIGN)
SPARED = Answer(Result.SPARED)
BRAKED = Answer(Result.BRAKED)


def plain(answers: Sequence[Answer]) -> bool:
    """Whether each answer is WRITTEN or UNCHANGED, as in almost every unit, or ADOPTED. Counting in C spares a look at each."""
    usual, other = (WRITTEN, UNCHANGED) if answers and answers[0] is WRITTEN else (UNCHANGED, WRITTEN)
    alike = answers.count(usual)
    for each in (other, ADOPTED):
        if alike < len(answers):
            alike += answers.count(each)
    return alike == len(answers)
