"""The errors of this package: each type says what the caller can do.

Adapters translate the exceptions of their drivers into these at their edge (`raise ... from`), so that nothing above an
adapter knows a driver's error. `Unavailable`: nobody is at fault, and the work is tried again. `Faulty`: the work itself is
at fault, and is cut smaller until one key is left. `TimedOut`: `core.witnesses` decides whether the work is at fault.
The text of an error has been through `masking`, so it may be printed.
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
    """The work was begun and not answered in time. If that repeats while other work is answered, the work is at fault."""


class Unreached(Unavailable):
    """The server has received nothing: there was no connection, or no thread."""


class Forbidden(Unavailable):
    """The user lacks a right that all such work needs, until a person grants it. Nothing must wait for that without end."""


class Unpaid(Unreached):
    """The payment for this work does not count any more: the budget has gone to another updater meanwhile."""


class Faulty(CacheUpdaterError):
    """This very work fails (its keys, its statement, its rows); trying all of it again will not help."""


class Stuck(CacheUpdaterError):
    """Something that this process cannot repair has stopped it from working; start it again."""


def first_error(error: BaseException) -> BaseException:
    """The first error, without the exception groups that task groups wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
