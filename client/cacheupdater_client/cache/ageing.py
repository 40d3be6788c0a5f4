"""How old a value may become: the settings `refresh_after`, `soft_timeout` and `fail_safe` of a declared value.

`declared` makes an `Ageing` of them when the application declares the value. A value with one of these settings is read
together with its age; see `refreshing`. No I/O, no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from cacheupdater_client.protocol.lease import FAIL_SAFE_S_MAX, FAIL_SAFE_S_MIN, Grace

if TYPE_CHECKING:
    from collections.abc import Callable

REFRESH_S_MIN = 0.1  # as the shortest lease: a value that is always too old would be loaded with each read
SOFT_S_MIN = 0.001
PAUSE_MS = 1000  # between two loads of a key whose source fails, over all processes
HOLDS = (
    2  # timeouts for which a value stays after invalidate(serve_old=True): a load that fails, and one more
)

# Without `refresh_after`, a value with `fail_safe` is loaded anew in the last fifth of its ttl: the old value must still be
# there when the load fails. Up to a tenth of the ttl is taken off by chance.
LATEST = 0.8

Bounds = tuple[float, float]


class Spelled(Protocol):
    """The settings as the application has written them."""

    @property
    def refresh_after(self) -> str | None: ...
    @property
    def soft_timeout(self) -> str | None: ...
    @property
    def fail_safe(self) -> str | None: ...


class Ageing(NamedTuple):
    """In milliseconds."""

    refresh_ms: int  # a value that is older is loaded anew, while readers get the old one
    soft_ms: int  # how long a reader of an older value waits for the new one
    grace: Grace | None  # how long the old value lives on while the source fails


def ageing_of(
    settings: Spelled, ttl_ms: int, timeout_ms: int, ms: Callable[[str, str, Bounds], int]
) -> Ageing | None:
    """None: the value is as good as new until it expires. `ms` reads a duration within bounds. ValueError if they do not fit."""
    after, safe, soft = settings.refresh_after, settings.fail_safe, settings.soft_timeout
    if after is None and safe is None:
        if soft is not None:
            raise ValueError(
                "soft_timeout needs refresh_after or fail_safe: without them no reader finds an old value"
            )
        return None
    refresh_ms = int(ttl_ms * LATEST)
    if after is not None:
        refresh_ms = ms("refresh_after", after, (REFRESH_S_MIN, ttl_ms * LATEST / 1000))
    grace = None
    if safe is not None:
        grace = Grace(ttl_ms, ms("fail_safe", safe, (FAIL_SAFE_S_MIN, FAIL_SAFE_S_MAX)), PAUSE_MS)
    soft_ms = 0 if soft is None else ms("soft_timeout", soft, (SOFT_S_MIN, timeout_ms / 1000))
    return Ageing(refresh_ms, soft_ms, grace)
