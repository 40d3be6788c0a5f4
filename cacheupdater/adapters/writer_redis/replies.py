"""The meaning of Redis' replies: an answer of the fence, a fault of one key, or a server that refuses for now.

Both writers read replies with these functions. Nothing here waits or remembers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from redis import exceptions as redis_errors

from cacheupdater import masking
from cacheupdater.core import answers
from cacheupdater.core.answers import Answer, Result
from cacheupdater.errors import Faulty
from cacheupdater_client.protocol import fence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ANSWERS: dict[fence.Outcome, Answer] = {
    fence.WRITTEN: answers.WRITTEN,
    fence.UNCHANGED: answers.UNCHANGED,
    fence.DUPLICATE: answers.DUPLICATE,
    fence.UNSOUND: answers.UNSOUND,
    fence.ADOPTED: answers.ADOPTED,
    fence.TOO_OLD: answers.TOO_OLD,
    fence.FOREIGN: answers.FOREIGN,
}
TOO_BIG = Answer(Result.FAILED, why="too big: a key may have 1 KiB, a value 1 MiB")

# Errors of the server, not of a key. Redis 6.2 wraps them in other text, so they may stand anywhere in the reply.
_SERVER_TROUBLE = re.compile(
    r"\b(OOM|READONLY|LOADING|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|MOVED|ASK|BUSY|NOPERM|NOAUTH)\b"
    r"|no permission|user executing the script can't"
)
# The user has no right to one key of the call, or to its floor. The reply says nothing about the other keys.
_KEY_REFUSED = re.compile(r"(permissions to|can't) access\b.*\bkeys?\b")

# The user may not run a command that every such call needs. Only a person can cure this, by a change of the rights.
_FORBIDDEN = re.compile(r"\bNOPERM\b|no permission|user executing the script can't")

_CODES = {
    redis_errors.OutOfMemoryError: "OOM",
    redis_errors.ReadOnlyError: "READONLY",
    redis_errors.NoPermissionError: "NOPERM",
    redis_errors.MasterDownError: "MASTERDOWN",
    redis_errors.ClusterDownError: "CLUSTERDOWN",
    redis_errors.TryAgainError: "TRYAGAIN",
    redis_errors.MovedError: "MOVED",
    redis_errors.AskError: "ASK",
}

# A server without scripts quotes the arguments of the call, which may hold a value
_USER = re.compile(r"\bUser .+(?= has no permissions)")
_ARGUMENTS = ", with args beginning with"


def is_trouble(text: str) -> bool:
    """Whether the server refuses for now, and would refuse any key."""
    return _SERVER_TROUBLE.search(text) is not None and not refuses_a_key(text)


def is_forbidden(text: str) -> bool:
    """Whether the user has no right to the command, for any key."""
    return _FORBIDDEN.search(text) is not None and not refuses_a_key(text)


def refuses_a_key(text: str) -> bool:
    """Whether the server answers that the user has no right to one of the call's keys."""
    return _KEY_REFUSED.search(text) is not None


def text_of(error: redis_errors.ResponseError) -> str:
    """The server's words without our arguments, and with their code, which redis-py turns into a type and removes."""
    said = told(str(error))
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return f"{code} {said}"
    return said


def told(said: str) -> str:
    """A reply's text without our arguments and without the name of our user, which Redis gives when it refuses."""
    return masking.foreign(_USER.sub("this user", said.partition(_ARGUMENTS)[0]))


def said_by(reply: Iterable[int | bytes | str]) -> list[fence.Outcome]:
    """What a script answers. Redis names its user in errors inside a script, too."""
    return fence.outcomes(reply, shown=told)


_LEFT: dict[fence.Outcome, Answer] = {
    fence.FOREIGN: answers.FOREIGN,
    fence.SPARED: answers.SPARED,
}  # by a removal


def removal_of(outcome: fence.Outcome) -> Answer:
    """The answer for one key that was to be removed."""
    if isinstance(outcome, fence.Failed):
        return Answer(Result.FAILED, why=outcome.text)
    return _LEFT.get(outcome, answers.WRITTEN)


def answers_of(outcomes: Sequence[fence.Outcome], token: int) -> list[Answer]:
    """What the fence did with each key."""
    said = list(map(_ANSWERS.get, outcomes))
    if all(said):  # nearly always, and then a batch costs no loop in Python
        return cast("list[Answer]", said)
    return [answer_of(each, token) for each in outcomes]


def answer_of(outcome: fence.Outcome, token: int) -> Answer:
    """The answer for one key that was to be written."""
    answer = _ANSWERS.get(outcome)
    if answer is not None:
        return answer
    if isinstance(outcome, fence.Refused):
        return Answer(Result.REFUSED, wait=outcome.wait_after(token))
    if isinstance(outcome, fence.Failed):
        return Answer(Result.FAILED, why=outcome.text)
    raise Faulty(f"Redis gave an answer that no script of ours gives: {outcome}")
