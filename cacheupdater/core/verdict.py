"""Whose values a namespace holds: ours, or those of an application that could not read what we would write.

One `Verdict` per namespace and process, shared by all its engines. The first values that stand in Redis decide. Until then
nothing is written, for `PATIENCE` at the most, so that an application that fills its cache by itself is seen first. Readers
that wait for an updater say that theirs does not: for them an empty namespace is ours at once. The namespace is ours if a row
is found and floors of ours stand beside the values, or if nobody has written a value by the time when we would write one. It is
foreign if most of the values are. It is also foreign if one field is, in most of the values that tell anything about it: a
price that is mostly NULL is judged by the few that are not. A foreign namespace stays so until the process starts with another
configuration. While no row has been found, no namespace is called ours: `pipeline.rowless` says what may be removed then.

A few values of ours let us write at once, for a restart must not cost two seconds. But they say little of the others: the
verdict is `settled` only with `ENOUGH` values, or after `WATCHED`. Until then foreign values among ours stay, and most of the
values may still turn out to be the application's. Values of ours may have been written in an earlier form: `reformed` says so.
`now` is an argument; nothing is read here.
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATIENCE = 2.0  # seconds: an application that missed a key has loaded and written it by then
WATCHED = 20.0  # seconds after which few values of ours settle the verdict: a change may wait until then, and each look costs a call
ENOUGH = 20  # values that decide at once; more would cost Redis and tell nothing new
FEW = 3  # values of ours: a column may hold another kind of content in one of them, without another form


class Sight(Enum):
    """What stands at one key."""

    OWN = "own"  # a load of ours has written it
    LIKE = "like"  # the application wrote what we would write
    FOREIGN = "foreign"  # the application wrote what it could not read from us
    BLANK = "blank"  # the application wrote it, and there is no row to compare it with


_TELL_NO_ROW = frozenset({Sight.OWN, Sight.BLANK})  # what may stand at a key without a row


class Seen(NamedTuple):
    """What was seen at one key. Its words repeat no value."""

    sight: Sight
    why: str = ""  # what is foreign in it, or in what form it is ours and would not be written now
    told: Mapping[str, str] = MappingProxyType({})
    """By field, if it tells anything: what is foreign in it; empty if it is alike."""


class Verdict:
    """The verdict on one namespace."""

    def __init__(self) -> None:
        self.says: Literal["nothing", "ours", "foreign"] = "nothing"
        self.why = ""
        self.settled = False  # whether no other value can change it
        self.reformed = ""  # what of our own values would be written in another form now
        self.awaited = False  # readers wait for us: their application fills nothing
        self.began: float | None = None  # when the first values were looked for
        self._until: float | None = None  # when it is given at the latest, whatever has been seen
        self._seen: dict[bytes, Seen] = {}

    def wait(self, now: float) -> float:
        """Seconds until it is given at the latest. The first call starts the time."""
        if self._until is None:
            self.began, self._until = now, now + PATIENCE
        return 0.0 if self.awaited and not self._seen else max(0.0, self._until - now)

    def saw(self, values: Mapping[bytes, Seen], now: float, *, writing: bool = True) -> None:
        """These values stand at their keys now; keys without any are left out. `writing`: we would write something now."""
        if self.settled:
            return
        self._seen.update(values)
        if self.says == "ours":
            self._watch(now)
            return
        over = self.wait(now) <= 0.0
        ours, theirs = self._whose()
        if writing and len(ours) > len(theirs):
            self.says, self._until = "ours", now + WATCHED
            self._watch(now)
        elif writing and not theirs and over:
            self._settle("ours")
        elif theirs and (over or len(theirs) >= ENOUGH):
            self._judge(theirs)
        elif not writing:
            self._forget_some()

    def stays(self, key: bytes) -> bool:
        """Whether the value of this key stays for now, although we write others."""
        seen = self._seen.get(key)
        return self.says == "ours" and seen is not None and seen.sight is Sight.FOREIGN

    def _watch(self, now: float) -> None:
        """We write. Do the values so far settle that?"""
        self._seen = {key: each for key, each in self._seen.items() if each.sight is not Sight.BLANK}
        ours, theirs = self._whose()
        self.reformed = self.reformed or _reformed(ours)
        if len(ours) + len(theirs) < ENOUGH and now < (self._until or now):
            return
        if len(theirs) > len(ours):
            self._judge(theirs)
        else:
            self._settle("ours")

    def _whose(self) -> tuple[Sequence[Seen], Sequence[Seen]]:
        """The values that were seen: ours, and those of the application that can be compared."""
        seen = self._seen.values()
        theirs = (Sight.LIKE, Sight.FOREIGN)
        return [each for each in seen if each.sight is Sight.OWN], [
            each for each in seen if each.sight in theirs
        ]

    def _forget_some(self) -> None:
        """While no row is found, each unit may bring other values: the latest ones are enough."""
        no_row = [key for key, each in self._seen.items() if each.sight in _TELL_NO_ROW]
        for key in no_row[:-ENOUGH]:
            del self._seen[key]

    def _judge(self, theirs: Sequence[Seen]) -> None:
        self.why = _most(theirs) or _most_that_tell(theirs)
        self._settle("foreign" if self.why else "ours")

    def _settle(self, says: Literal["ours", "foreign"]) -> None:
        self.says, self.settled = says, True
        self._seen.clear()


def _reformed(ours: Sequence[Seen]) -> str:
    """What most of our own values have in common that are in another form. A form beside the floor is certain evidence."""
    others = [each for each in ours if each.why]
    if 2 * len(others) <= len(ours) or (len(others) < FEW and all(each.told for each in others)):
        return ""
    return f"{len(others)} of the first {len(ours)} values that cacheupdater wrote are in another form: {others[0].why}"


def _most(theirs: Sequence[Seen]) -> str:
    foreign = [each.why for each in theirs if each.sight is Sight.FOREIGN]
    if 2 * len(foreign) <= len(theirs):
        return ""
    return f"{len(foreign)} of the first {len(theirs)} values are not ours: {foreign[0]}"


def _most_that_tell(theirs: Sequence[Seen]) -> str:
    """A field that most values lack, or hold NULL in, is judged by the others."""
    told: defaultdict[str, list[str]] = defaultdict(list)
    for each in theirs:
        for field, what in each.told.items():
            told[field].append(what)
    for whats in told.values():
        foreign = [each for each in whats if each]
        if 2 * len(foreign) > len(whats):
            return (
                f"{len(foreign)} of the first {len(whats)} values with this field are not ours: {foreign[0]}"
            )
    return ""
