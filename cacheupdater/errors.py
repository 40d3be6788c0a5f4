"""What can go wrong, told by what the caller can do about it.

Adapters translate the exceptions of their drivers into these at their edge (`raise ... from`), so that
nothing above an adapter knows a driver's error. The kind of retry is the type: `Unavailable` is nobody's
fault and is tried again, `Faulty` is the fault of the work itself and is cut smaller until one key is left. Of `TimedOut`
it is found out whose fault it is. What they say has been through `masking`: whoever prints one may do so.
"""

from cacheupdater import masking


class CacheUpdaterError(Exception):
    """Base of all errors that this package raises on purpose."""

    def __str__(self) -> str:
        return masking.text(super().__str__())


class Misconfigured(CacheUpdaterError):
    """The configuration cannot work; a person must change it."""


class Unavailable(CacheUpdaterError):
    """A database or Redis cannot be reached, is too slow or refuses for now; try the same work later."""


class TimedOut(Unavailable):
    """The work was begun and not answered in time. If that goes on while others are answered, it is its own fault."""


class Unreached(Unavailable):
    """Nobody was asked anything: no connection, no thread."""


class Forbidden(Unavailable):
    """The user has no right to what all such work needs, until a person grants it; nothing must wait for that without end."""


class Unpaid(Unreached):
    """What was paid for it does not count any more: the budget has gone to another updater meanwhile."""


class Faulty(CacheUpdaterError):
    """This very work fails (its keys, its statement, its rows); trying all of it again will not help."""


class Stuck(CacheUpdaterError):
    """Something that this process cannot repair has stopped it from working; start it again."""
