"""What the errors of the streams' Redis mean to a caller: try again, or a person must act.

`servers` raises through `translated`. Nothing here waits or remembers.
"""

from __future__ import annotations

import re

from redis import exceptions as redis_errors

from cacheupdater import masking
from cacheupdater.errors import CacheUpdaterError, Faulty, Forbidden, Unavailable

# Errors of a server that refuses for now, with redis-py's types for them, which remove the code from the text. Redis 6.2
# wraps those of scripts in other text, so a code may stand anywhere.
_FOR_NOW = re.compile(
    r"\b(OOM|READONLY|LOADING|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|MOVED|ASK|BUSY|NOSCRIPT|UNBLOCKED)\b"
)
_TYPES_FOR_NOW = (
    redis_errors.OutOfMemoryError,
    redis_errors.ReadOnlyError,
    redis_errors.MasterDownError,
    redis_errors.ClusterDownError,
    redis_errors.TryAgainError,
    redis_errors.AskError,
    redis_errors.NoScriptError,
)
_FORBIDDEN = re.compile(r"\bNOPERM\b|no permission|user executing the script can't")
_FULL = re.compile(r"\bFULL (\S+) has (\d+) packs")
_USER = re.compile(r"\bUser .+(?= has no permissions)")


def translated(error: BaseException, stream: str) -> CacheUpdaterError:
    """Our error for one of redis-py's, or of the system's."""
    said = _USER.sub("this user", str(error))
    shown = masking.foreign(said)
    if isinstance(error, (TimeoutError, redis_errors.TimeoutError)):
        return Unavailable("Redis did not answer in time")
    if isinstance(error, redis_errors.NoPermissionError) or _FORBIDDEN.search(said):
        return Forbidden(f"this Redis user may not use the streams {stream}: {shown}")
    if full := _FULL.search(said):
        return Unavailable(f"{full[1]} is full: {full[2]} packs of changes and misses wait for its owner")
    if "WRONGTYPE" in said:
        return Faulty(
            f"a key of the streams {stream} holds a value that is not ours; remove the keys that begin with {{{stream},"
            " or choose another name"
        )
    refuses = isinstance(error, redis_errors.ResponseError) and not isinstance(error, _TYPES_FOR_NOW)
    if refuses and not _FOR_NOW.search(said):
        return Faulty(f"Redis refuses what the streams {stream} need (Redis 6.2 or newer): {shown}")
    return Unavailable(f"Redis cannot be used now: {shown}")
